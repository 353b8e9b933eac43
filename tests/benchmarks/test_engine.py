from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.engine import EngineFailed, in_own_process


def test_an_engine_that_takes_too_long_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.engine.PATIENCE", 0.01)
    told = r"engine of slow could not be measured: it had not ended after 0.03 s\.$"
    with pytest.raises(EngineFailed, match=told):
        in_own_process(Path("slow"), {"same": ["a text"]}, 0.01)
