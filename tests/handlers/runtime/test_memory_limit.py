from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from handlers.runtime import memory_limit
from handlers.runtime.memory_limit import memory_limit as limit


@pytest.mark.parametrize(("content", "expected"), [("1000000\n", 1_000_000), ("max\n", None)])
def test_the_limit_of_the_container_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, expected: int | None
) -> None:
    path = tmp_path / "memory.max"
    path.write_text(content, encoding="utf-8")
    monkeypatch.setattr(memory_limit, "CGROUP_LIMITS", (path, tmp_path / "missing"))
    assert limit() == (expected or psutil.virtual_memory().total)
