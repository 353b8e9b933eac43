"""Counts and stage times of one TorchServe batch."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Meter:
    """Counts and stage times of one batch.

    Attributes:
        counts: requests, errors, rows, tokens without padding, slots (tokens with padding) and
            forwards.
        seconds: time by stage name.
    """

    counts: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

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
