"""The model output to explain, and its attribution to segments of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from handlers.batching.tokenization import Window
from handlers.explainers._segments import Segment

CONVERGENCE_TOLERANCE = 0.05


@dataclass(frozen=True)
class AttributionTarget:
    """A scalar model output F to explain, for one row.

    Attributes:
        row: the row.
        segments: the segments of the row that F is attributed to.
        output: name of the model output that contains F.
        index: index of F in that output, without the batch dimension.
        score: F, if the prediction has computed it.
        compared: a vector whose cosine with the first dimensions of the output is F, in place of a
            number of the output. Shape: (dimensions,).
    """

    row: Window
    segments: Sequence[Segment]
    output: str
    index: tuple[int, ...]
    score: float | None = None
    compared: npt.NDArray[np.float32] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Attribution:
    """The contribution of each segment, before normalization.

    Attributes:
        values: the contribution of each segment; with a complete method they sum to
            `output - baseline`. Shape: (segments,).
        output: F of the row.
        baseline: F of the row with every segment replaced by the baseline token.
    """

    values: npt.NDArray[np.float64] = field(repr=False)
    output: float
    baseline: float

    @property
    def delta(self) -> float:
        """Captum's convergence delta: sum of the values minus `output - baseline`."""
        return float(self.values.sum() - (self.output - self.baseline))

    @property
    def relative_error(self) -> float:
        """The delta relative to `output - baseline`; infinite if there is no difference."""
        difference = abs(self.output - self.baseline)
        return abs(self.delta) / difference if difference else float("inf")

    @property
    def converged(self) -> bool:
        """Whether the values sum to `output - baseline` within 5%."""
        return self.relative_error <= CONVERGENCE_TOLERANCE
