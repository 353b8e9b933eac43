"""How many times as much one contender did as another, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Ratio:
    """The middle of the rounds' ratios, and the least and the most of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        """Compare figures of the same rounds, in order."""
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        return cls(median(ratios), min(ratios), max(ratios))
