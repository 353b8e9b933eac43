from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from handlers.runtime.memory_limit import available_memory
from handlers.runtime.memory_limit import memory_limit as limit


@pytest.mark.parametrize(("content", "expected"), [("1000000\n", 1_000_000), ("max\n", None)])
def test_the_limit_of_the_container_counts(
    tmp_path: Path, content: str, expected: int | None
) -> None:
    path = tmp_path / "memory.max"
    path.write_text(content, encoding="utf-8")
    assert limit((path, tmp_path / "missing")) == (expected or psutil.virtual_memory().total)


def test_a_gpu_has_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (3_000_000, 8_000_000))
    assert available_memory(torch.device("cuda:1")) == 3_000_000
    assert available_memory(torch.device("cpu")) == limit()
