"""What is to be explained, and the explanation as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from handlers.batching.tokenization import Window
from handlers.explainers._segments import Segment

TOLERANCE = 0.05


@dataclass(frozen=True)
class AttributionTarget:
    """One number that the model computes for a row: F. Its causes are asked for.

    Attributes:
        row: the row.
        pieces: what the causes are counted by.
        output: the model output that holds F.
        index: where F lies in that output, behind the batch dimension.
        score: F, where the prediction has told it already.
    """

    row: Window
    segments: Sequence[Segment]
    output: str
    index: tuple[int, ...]
    score: float | None = None


@dataclass(frozen=True)
class Attribution:
    """How much each piece of an aim contributed, before any normalisation.

    Attributes:
        values: a number for each piece; with a complete method they sum to `output - baseline`.
        output: F of the row.
        baseline: F of the row with every piece replaced by padding.
    """

    values: npt.NDArray[np.float64] = field(repr=False)
    output: float
    baseline: float

    @property
    def delta(self) -> float:
        """By how much the values miss the difference."""
        return float(self.values.sum() - (self.output - self.baseline))

    @property
    def relative_error(self) -> float:
        """The delta as a share of the difference; infinite where there is none to explain."""
        difference = abs(self.output - self.baseline)
        return abs(self.delta) / difference if difference else float("inf")

    @property
    def converged(self) -> bool:
        """Whether the values sum to the difference within 5%."""
        return self.relative_error <= TOLERANCE
