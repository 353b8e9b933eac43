"""TorchServe metrics, which its Prometheus endpoint exports."""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

COUNTERS = ("requests", "errors", "rows", "tokens", "slots", "forwards")
# Seconds between reports. The worker prints a line for each metric, which the frontend parses while
# requests wait.
INTERVAL = 1.0
# The gauges of texts that are not done. As long as one is not 0, the load is reported again.
UNFINISHED = ("running_texts", "waiting_texts")

# The histograms of the seconds of each stage, and of the whole batch.
STAGES, BATCH = "hf_stage_seconds", "hf_batch_seconds"
# The upper bounds of the buckets in seconds.
BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)  # fmt: skip
INFINITE = "+Inf"

Load = Callable[[], Mapping[str, float]]


@dataclass
class Meter:
    """Counts and stage times of one batch.

    Attributes:
        counts: requests, errors, rows, tokens without padding, slots (tokens with padding) and
            forwards.
        seconds: time by stage name.
    """

    counts: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(
        default_factory=partial(defaultdict[str, float], float)
    )

    def count(self, **amounts: int) -> None:
        """Add to the named counts."""
        self.counts.update(amounts)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the duration of the block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    @property
    def padding_share(self) -> float:
        """Share of padding in the computed tokens, from 0 to 1."""
        slots = self.counts["slots"]
        return 1 - self.counts["tokens"] / slots if slots else 0.0


@dataclass(frozen=True)
class Dimension:
    """A label of a metric, as TorchServe's class of this name."""

    name: str
    value: str


@dataclass(frozen=True)
class Increment:
    """What is added to one counter of a histogram.

    Attributes:
        suffix: the end of the name of the counter.
        labels: further labels.
    """

    suffix: str
    amount: float
    labels: tuple[Dimension, ...] = ()


class Histogram:
    """Counts seconds by bucket until they are reported; each bucket is a counter of TorchServe.

    A histogram of TorchServe takes one value per line of the worker's log, and its largest bucket
    is 10 seconds. Counters take all batches of an interval in one line for each bucket.
    """

    def __init__(self) -> None:
        self._counts, self._sum = Counter[int](), 0.0
        self._is_new = True

    def observe(self, seconds: float) -> None:
        """Count a value."""
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def take(self) -> Iterator[Increment]:
        """Yield what was counted since the last call; at the first call also what is 0."""
        counts, total, is_new = self._counts, self._sum, self._is_new
        self._counts, self._sum, self._is_new = Counter(), 0.0, False
        bounds = [*map(str, BUCKETS), INFINITE]
        cumulative = list(accumulate(counts[number] for number in range(len(bounds))))
        for bound, amount in zip(bounds, cumulative, strict=True):
            if amount or is_new:
                yield Increment("_bucket", amount, (Dimension("le", bound),))
        if counts:
            yield Increment("_sum", round(total, 6))
            yield Increment("_count", cumulative[-1])


class MetricsReporter:
    """Reports counts and histograms of all batches, times of one and the load, once per interval.

    Args:
        gauge: TorchServe's `MetricTypes.GAUGE`.
        interval: seconds between two reports. The counts of the batches after a report are in the
            next one, which comes at the latest when they have waited for an interval.
    """

    def __init__(
        self,
        gauge: Any,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gauge, self._interval, self._clock = gauge, interval, clock
        self._lock = threading.Lock()
        self._counts = Counter[str]()
        self._reported: set[str] = set()
        self._stages = defaultdict[str, Histogram](Histogram)
        self._batch = Histogram()
        self._next_report = -math.inf
        self._timer: threading.Timer | None = None

    def report(self, metrics: Any, meter: Meter, seconds: float, load: Load = dict) -> None:
        """Report the metrics of a batch, or count it for the next report.

        Args:
            metrics: the metrics object of TorchServe's context; None outside of TorchServe.
            meter: counts and stage times of the batch.
            seconds: total time of the handler.
            load: returns numbers about the running sequences of a model that schedules them itself.
        """
        if metrics is None:
            return
        with self._lock:
            self._counts.update(meter.counts)
            self.observe(meter, seconds)
            if self._clock() < self._next_report:
                if self._timer is None:
                    self._report_later(metrics, load)
                return
            self._next_report = self._clock() + self._interval
            self._set_gauges(metrics, meter, seconds)
            self._report_totals(metrics, load)

    def watch(self, metrics: Any, load: Load) -> None:
        """Report the load after an interval, and until no text runs.

        Args:
            metrics: the metrics object of TorchServe's context; None outside of TorchServe.
            load: returns numbers about the running texts.
        """
        if metrics is not None:
            with self._lock:
                if self._timer is None:
                    self._report_later(metrics, load)

    def _report_later(self, metrics: Any, load: Load) -> None:
        """Report counts and load after an interval, unless another batch does so before."""
        without_requests = copy(metrics)
        without_requests.request_ids = {}
        timer = threading.Timer(self._interval, self._report_now, [without_requests, load])
        timer.daemon = True
        with suppress(RuntimeError):  # Where no thread can start, the next batch reports.
            timer.start()
            self._timer = timer

    def _report_now(self, metrics: Any, load: Load) -> None:
        with self._lock:
            self._report_totals(metrics, load)

    def _report_totals(self, metrics: Any, load: Load) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._add_counters(metrics)
        self.add_histograms(metrics)
        numbers = load()
        for name, value in numbers.items():
            metrics.add_metric(f"hf_{name}", value, "count", None, [], self._gauge)
        if any(numbers.get(name) for name in UNFINISHED):
            self._report_later(metrics, load)

    def _add_counters(self, metrics: Any) -> None:
        for name in COUNTERS:
            # Every counter is exported from the first batch on, with 0 if nothing was counted.
            if self._counts[name] or name not in self._reported:
                metrics.add_counter(f"hf_{name}_total", self._counts[name], dimensions=[])
                self._reported.add(name)
        self._counts.clear()

    def observe(self, meter: Meter, seconds: float) -> None:
        """Count the seconds of a batch in the histograms."""
        self._batch.observe(seconds)
        for stage, duration in meter.seconds.items():
            self._stages[stage].observe(duration)

    def add_histograms(self, metrics: Any) -> None:
        """Report what the histograms have counted."""
        _add(metrics, BATCH, self._batch)
        for stage, histogram in self._stages.items():
            _add(metrics, STAGES, histogram, Dimension("stage", stage))

    def _set_gauges(self, metrics: Any, meter: Meter, seconds: float) -> None:
        size = meter.counts["requests"]
        metrics.add_metric("hf_batch_size", size, "count", None, [], self._gauge)
        for stage, duration in meter.seconds.items():
            metrics.add_time(f"hf_{stage}_time", _ms(duration), None, "ms", dimensions=[])
        metrics.add_percent("hf_padding_share", round(100 * meter.padding_share, 2), dimensions=[])
        metrics.add_time("HandlerTime", _ms(seconds), None, "ms", dimensions=[])


def _add(metrics: Any, name: str, histogram: Histogram, *labels: Dimension) -> None:
    for each in histogram.take():
        # TorchServe adds its own labels to the list.
        dimensions = [*labels, *each.labels]
        metrics.add_counter(f"{name}{each.suffix}", each.amount, dimensions=dimensions)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
