from __future__ import annotations

from typing import Any

import pytest

from benchmarks.contenders.base import Contender
from benchmarks.engine import EngineSpeed
from benchmarks.entry import Entry
from benchmarks.load import Load
from benchmarks.measurement import Measurement
from benchmarks.ratio import Ratio
from benchmarks.summary import Line, lines, starts


class Named(Contender):
    """A contender that is never started."""

    url, leader = "", 0

    def __init__(self, name: str, precision: str = "float32") -> None:
        self.name, self.precision = name, precision

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


def measurement(
    rows_per_second: float, p50_ms: float = 10.0, engine: float | None = None
) -> Measurement:
    one = Load(100, 1, 1.0, rows_per_second, p50_ms, 2 * p50_ms, 3 * p50_ms)
    alone = EngineSpeed(engine, p50_ms - 1.5, 0.1) if engine else None
    return Measurement(7.0, 500_000_000, {1: one, 32: one}, alone)


def entry(name: str, *measurements: Measurement, **more: Any) -> Entry:
    return Entry(Named(name), measurements=list(measurements), **more)


def found(*entries: Entry, clients: int = 32) -> dict[str, Line]:
    summary = lines(entries, flops_per_row=5e9, peaks={"float32": 2.0})
    return {line.contender: line for line in summary if line.clients == clients}


REFERENCE = entry("reference", measurement(10), measurement(8), measurement(10))


def test_ratios_compare_the_same_round() -> None:
    kit = found(REFERENCE, entry("kit", measurement(140), measurement(160), measurement(150)))[
        "kit"
    ]
    assert kit.against == {"reference": Ratio(median=15.0, low=14.0, high=20.0)}
    assert kit.rows_per_second == 150
    assert kit.errors == 3


def test_a_baseline_is_not_compared_with_itself() -> None:
    assert found(REFERENCE)["reference"].against == {}


def test_throughput_is_compared_with_the_engine_of_the_same_round() -> None:
    kit = entry("kit", measurement(90, 12, engine=100), measurement(80, 10, engine=100))
    share = found(kit)["kit"].share_of_engine
    assert share and (share.low, share.median, share.high) == pytest.approx((0.8, 0.85, 0.9))
    assert found(kit)["kit"].over_engine_ms is None
    assert found(kit, clients=1)["kit"].over_engine_ms == pytest.approx(1.5)
    assert found(REFERENCE)["reference"].share_of_engine is None


def test_the_share_of_peak_is_computed_from_real_tokens() -> None:
    assert found(entry("kit", measurement(100)))["kit"].share_of_peak == pytest.approx(0.25)
    other = Entry(Named("kit", "float16"), measurements=[measurement(100)])
    assert found(other)["kit"].share_of_peak is None


def test_a_failed_contender_has_no_results_and_is_no_baseline() -> None:
    failed = entry("reference", measurement(10), failure="It did not start.")
    results = found(failed, entry("kit", measurement(100), measurement(100)))
    assert results.keys() == {"kit"}
    assert results["kit"].against == {}
    assert starts([failed]) == []
