"""Compare two contenders round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Ratio:
    """The median, minimum and maximum of the ratios of all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        """Compare the results of the same rounds."""
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        return cls(median(ratios), min(ratios), max(ratios))
