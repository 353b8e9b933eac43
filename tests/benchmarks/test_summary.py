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


def took(rows_per_second: float, p50_ms: float = 10.0, engine: float | None = None) -> Measurement:
    one = Load(100, 1, 1.0, rows_per_second, p50_ms, 2 * p50_ms, 3 * p50_ms)
    alone = EngineSpeed(engine, p50_ms - 1.5, 0.1) if engine else None
    return Measurement(7.0, 500_000_000, {1: one, 32: one}, alone)


def entry(name: str, *turns: Measurement, **more: Any) -> Entry:
    return Entry(Named(name), measurements=list(turns), **more)


def found(*entries: Entry, clients: int = 32) -> dict[str, Line]:
    told = lines(entries, flops_per_row=5e9, peaks={"float32": 2.0})
    return {line.contender: line for line in told if line.clients == clients}


REFERENCE = entry("reference", took(10), took(8), took(10))


def test_ratios_are_those_of_the_same_round_with_their_spread() -> None:
    kit = found(REFERENCE, entry("kit", took(140), took(160), took(150)))["kit"]
    assert kit.against == {"reference": Ratio(median=15.0, low=14.0, high=20.0)}
    assert kit.rows_per_second == 150
    assert kit.errors == 3


def test_a_base_is_not_compared_with_itself() -> None:
    assert found(REFERENCE)["reference"].against == {}


def test_the_engine_of_the_same_turn_is_the_ceiling() -> None:
    told = entry("kit", took(90, 12, engine=100), took(80, 10, engine=100))
    share = found(told)["kit"].share_of_engine
    assert share and (share.low, share.median, share.high) == pytest.approx((0.8, 0.85, 0.9))
    assert found(told)["kit"].over_engine_ms is None
    assert found(told, clients=1)["kit"].over_engine_ms == pytest.approx(1.5)
    assert found(REFERENCE)["reference"].share_of_engine is None


def test_the_share_of_the_peak_counts_the_real_tokens_work() -> None:
    assert found(entry("kit", took(100)))["kit"].share_of_peak == pytest.approx(0.25)
    other = Entry(Named("kit", "float16"), measurements=[took(100)])
    assert found(other)["kit"].share_of_peak is None


def test_who_failed_has_no_figures_and_is_no_base() -> None:
    failed = entry("reference", took(10), failure="It did not start.")
    told = found(failed, entry("kit", took(100), took(100)))
    assert told.keys() == {"kit"}
    assert told["kit"].against == {}
    assert starts([failed]) == []
