"""Metrics are reported once per interval, and no batch is left out."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest

from hf_serve.handlers.telemetry.metrics import BUCKETS, COUNTERS, Meter, MetricsReporter
from tests.clock import Clock
from tests.waiting import wait_for


class Recorded:
    """Has TorchServe's methods, and keeps what they were called with."""

    def __init__(self) -> None:
        self.request_ids = {0: "id-0"}
        self.counts: list[tuple[str, float, dict[int, str]]] = []
        self.times: list[str] = []
        self.gauges: dict[str, float] = {}
        self.buckets = defaultdict[tuple[str, ...], float](float)

    def add_counter(self, name: str, value: float, *, dimensions: list[Any]) -> None:
        if name.endswith("_total"):
            self.counts.append((name, value, self.request_ids))
        else:
            self.buckets[name, *(each.value for each in dimensions)] += value

    def add_metric(self, name: str, value: float, *_: Any) -> None:
        self.times.append(name)
        self.gauges[name] = value

    def add_time(self, name: str, *_: Any, **__: Any) -> None:
        self.times.append(name)

    def add_percent(self, name: str, *_: Any, **__: Any) -> None:
        self.times.append(name)

    def values_of(self, name: str) -> list[float]:
        return [value for found, value, _ in self.counts if found == f"hf_{name}_total"]


def batch_of(rows: int) -> Meter:
    meter = Meter()
    meter.count(requests=1, rows=rows)
    return meter


def test_the_first_batch_is_reported_at_once_with_every_counter() -> None:
    metrics = Recorded()
    MetricsReporter(None, interval=3600).report(metrics, batch_of(2), 0.1)
    assert [name for name, _, _ in metrics.counts] == [f"hf_{name}_total" for name in COUNTERS]
    assert metrics.values_of("rows") == [2]
    assert metrics.values_of("errors") == [0]
    assert "HandlerTime" in metrics.times


def test_batches_within_an_interval_are_reported_together_without_another_one() -> None:
    metrics, reporter = Recorded(), MetricsReporter(None, 0.2, Clock())
    for rows in (2, 3, 4):
        reporter.report(metrics, batch_of(rows), 0.1)
    assert metrics.values_of("rows") == [2]
    wait_for(lambda: metrics.values_of("rows") == [2, 7])
    assert metrics.values_of("requests") == [1, 2]
    # A later report has no requests of its own, and no counter that stays as it is.
    assert metrics.counts[-1][2] == {}
    assert metrics.values_of("errors") == [0]
    assert metrics.times.count("HandlerTime") == 1


def test_the_load_is_reported_until_no_text_runs_although_no_batch_follows() -> None:
    metrics, reporter = Recorded(), MetricsReporter(None, interval=0.05)
    others = set(threading.enumerate())
    load = {"running_texts": 2, "waiting_texts": 1}
    reporter.report(metrics, batch_of(1), 0.1, lambda: load)
    assert metrics.gauges["hf_running_texts"] == 2
    load = {"running_texts": 0, "waiting_texts": 1}
    wait_for(lambda: metrics.gauges["hf_running_texts"] == 0)
    load = {"running_texts": 0, "waiting_texts": 0}
    wait_for(lambda: metrics.gauges["hf_waiting_texts"] == 0)
    # A thread waits for the time of the next report, and there is none.
    wait_for(lambda: not set(threading.enumerate()) - others)


def test_the_load_is_reported_although_no_batch_has_ended() -> None:
    metrics, reporter = Recorded(), MetricsReporter(None, interval=0.05)
    load = {"running_texts": 1}
    reporter.watch(metrics, lambda: load)
    wait_for(lambda: metrics.gauges.get("hf_running_texts") == 1)
    load = {"running_texts": 0}
    wait_for(lambda: metrics.gauges["hf_running_texts"] == 0)


def test_where_no_thread_can_start_the_next_report_has_the_counts(monkeypatch: Any) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Timer.start", fail)
    metrics, clock = Recorded(), Clock()
    reporter = MetricsReporter(None, 1.0, clock)
    for rows in (2, 3):
        reporter.report(metrics, batch_of(rows), 0.1)
    clock.now = 1.0
    reporter.report(metrics, batch_of(4), 0.1)
    assert metrics.values_of("rows") == [2, 7]


def test_histograms_have_all_batches_of_an_interval() -> None:
    metrics, clock = Recorded(), Clock()
    reporter = MetricsReporter(None, 1.0, clock)
    for seconds in (0.001, 0.004, 0.3, 100.0):
        meter = batch_of(1)
        meter.seconds["forward"] = seconds
        reporter.report(metrics, meter, 2 * seconds)
    # The first report has every bucket of its batch, so that rates begin with it.
    buckets = [key for key in metrics.buckets if key[:2] == ("hf_stage_seconds_bucket", "forward")]
    assert [key[2] for key in buckets] == [*map(str, BUCKETS), "+Inf"]
    clock.now = 1.0
    reporter.report(metrics, batch_of(1), 0.02)
    counts = [metrics.buckets[key] for key in buckets]
    assert counts == [0, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 4]
    assert metrics.buckets["hf_stage_seconds_count", "forward"] == 4
    assert metrics.buckets["hf_stage_seconds_sum", "forward"] == pytest.approx(100.305)
    assert metrics.buckets["hf_batch_seconds_count",] == 5


def test_without_an_interval_each_batch_is_reported() -> None:
    metrics, reporter = Recorded(), MetricsReporter(None, interval=0.0)
    for rows in (2, 3):
        reporter.report(metrics, batch_of(rows), 0.1)
    assert metrics.values_of("rows") == [2, 3]
    assert metrics.times.count("HandlerTime") == 2


def test_outside_of_torchserve_nothing_is_reported() -> None:
    MetricsReporter(None).report(None, batch_of(1), 0.1)
