from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.engine import EngineFailed, measure_in_subprocess


def test_an_engine_that_times_out_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.engine.TIMEOUT", 0.01)
    message = r"engine of slow could not be measured: it did not finish within 0.03 s\.$"
    with pytest.raises(EngineFailed, match=message):
        measure_in_subprocess(Path("slow"), {"same": ["a text"]}, 0.01)
