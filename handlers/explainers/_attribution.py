"""The model output to explain, and its attribution to segments of the input."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Generic

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import TypeVar

from handlers.batching.rows import BaseRow, Row
from handlers.checkpoints.similarity import SIMILARITIES
from handlers.explainers._segments import Segment

RowT = TypeVar("RowT", bound=BaseRow, default=Row)
SegmentsT = TypeVar("SegmentsT", bound=Sized, default=Sequence[Segment])

CONVERGENCE_TOLERANCE = 0.05


def unit_vector(vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the vector of length 1 in the direction of a vector; zeros stay zeros."""
    unit: npt.NDArray[np.float32] = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return unit


@dataclass(frozen=True, eq=False)
class Comparison:
    """A vector, to which the similarity of an output is explained.

    Attributes:
        vector: the vector, which is compared with the first dimensions of the output. Shape:
            (size,).
        similarity: the name of the similarity.
        normalizes: whether the output gets a length of 1 before it is compared.
    """

    vector: torch.Tensor
    similarity: str = "cosine"
    normalizes: bool = False

    @property
    def batch_key(self) -> Hashable:
        """The properties that comparisons must have in common to be computed together."""
        return len(self.vector), self.similarity, self.normalizes

    @property
    def argument(self) -> torch.Tensor:
        """What :meth:`score` needs of it in a batch. Shape: (size,)."""
        return self.vector

    def score(self, outputs: torch.Tensor, arguments: torch.Tensor) -> torch.Tensor:
        """Return the similarity of each output to the vector of its row. Shape: (rows,).

        Args:
            outputs: the outputs. Shape: (rows, size or more).
            arguments: `argument` of each row.
        """
        if self.normalizes:
            outputs = torch.nn.functional.normalize(outputs, dim=-1)
        first_dimensions = outputs[:, : arguments.shape[1]]
        return SIMILARITIES[self.similarity](first_dimensions, arguments.to(outputs.device))


@dataclass(frozen=True, eq=False)
class TokensComparison(Comparison):
    """A direction: what is explained is the mean of the vectors of some tokens along it.

    Attributes:
        tokens: the tokens, which follow each other in the row.
    """

    tokens: range = field(kw_only=True)

    @property
    def batch_key(self) -> Hashable:
        return type(self), len(self.vector)

    @property
    def argument(self) -> torch.Tensor:
        """The vector, and the first token and the one after the last. Shape: (size + 2,)."""
        ends = self.vector.new_tensor([self.tokens.start, self.tokens.stop])
        return torch.cat([self.vector, ends])

    def score(self, outputs: torch.Tensor, arguments: torch.Tensor) -> torch.Tensor:
        """Return the mean of each row's tokens along its vector. Shape: (rows,).

        Args:
            outputs: the vectors of tokens. Shape: (rows, width, size).
            arguments: `argument` of each row.
        """
        arguments = arguments.to(outputs.device)
        directions, first, end = arguments[:, :-2], arguments[:, -2:-1], arguments[:, -1:]
        columns = torch.arange(outputs.shape[1], device=outputs.device)
        meant = (columns >= first) & (columns < end)
        # The outputs of padding may be NaN.
        vectors = torch.where(meant[:, :, None], outputs, 0)
        return torch.einsum("rws,rs->r", vectors, directions) / (end - first)[:, 0]


@dataclass(frozen=True)
class AttributionTarget(Generic[RowT, SegmentsT]):
    """A scalar F to explain, for one row: a number of an output, or its similarity to a vector.

    Attributes:
        row: the row.
        segments: the segments of the row that F is attributed to: of tokens, or patches of an
            image.
        output: name of the model output that contains F.
        index: index of F in that output, without the batch dimension; empty for a similarity.
        score: F, if the prediction has computed it.
        comparison: the vector to which the output is similar; None where F is one of its numbers.
    """

    row: RowT
    segments: SegmentsT
    output: str
    index: tuple[int, ...]
    score: float | None = None
    comparison: Comparison | None = None


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
        """The delta relative to `output - baseline`; infinite if only that is 0."""
        difference = abs(self.output - self.baseline)
        if not self.delta:
            return 0.0
        return abs(self.delta) / difference if difference else float("inf")

    @property
    def is_finite(self) -> bool:
        """Whether all of its numbers are finite."""
        return bool(np.isfinite([*self.values, self.output, self.baseline]).all())

    @property
    def converged(self) -> bool:
        """Whether the values sum to `output - baseline` within 5%."""
        return self.relative_error <= CONVERGENCE_TOLERANCE
