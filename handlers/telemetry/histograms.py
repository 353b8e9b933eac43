"""Histograms of seconds for Prometheus, whose buckets are counters of TorchServe.

A histogram of TorchServe takes one value per line of the worker's log, and its largest bucket is
10 seconds. Counters take all batches of an interval in one line for each bucket.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

# The upper bounds of the buckets in seconds.
BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)  # fmt: skip
INFINITE = "+Inf"


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
    """Counts seconds by bucket until they are reported."""

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
