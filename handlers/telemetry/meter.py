"""What one TorchServe batch cost: counts, and the time spent in each stage."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Meter:
    """Counts and stage times of one batch.

    `counts` holds requests, errors, rows, tokens (real ones), slots (tokens computed, padding
    counted) and forwards; `seconds` the time by stage name.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, **amounts: int) -> None:
        """Add to the named counts."""
        self.counts.update(amounts)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    @property
    def padding_share(self) -> float:
        """Share of the computed tokens that were padding, from 0 to 1."""
        slots = self.counts["slots"]
        return 1 - self.counts["tokens"] / slots if slots else 0.0
