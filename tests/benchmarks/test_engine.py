from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.engine import EngineFailed, measure_in_subprocess


def test_an_engine_that_takes_too_long_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.engine.TIMEOUT", 0.01)
    told = r"engine of slow could not be measured: it did not finish within 0.03 s\.$"
    with pytest.raises(EngineFailed, match=told):
        measure_in_subprocess(Path("slow"), {"same": ["a text"]}, 0.01)
