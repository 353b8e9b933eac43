"""Models whose rows are tokens, and the padded batches that are attributed to segments of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from handlers.batching.padding import Batch, Padding, group_by_length, pad, unpadded
from handlers.explainers._attribution import AttributionTarget
from handlers.explainers._segments import Segment
from handlers.explainers._vectors import TokenVectors
from handlers.explainers.base import AnyTarget, AttributionBatch, ExplainedModel, Values

# Each row is computed many times, so a group has less padding than that of a prediction.
MAX_PADDING_SHARE = 0.25


class TokenBatch(AttributionBatch):
    """A padded batch of token ids. Shape of inputs and baseline: (rows, width)."""

    input_name = "input_ids"
    model: ExplainedTextModel
    targets: Sequence[AttributionTarget]

    def collate(self) -> Batch:
        return pad([target.row for target in self.targets], self.model.padding)

    def baseline_inputs(self) -> torch.Tensor:
        replaced = self._segment_indices() >= 0
        return torch.where(replaced, self.model.baseline_token_id, self.inputs)

    @property
    def _vectors(self) -> TokenVectors:
        if self.model.vectors is None:
            raise NotImplementedError
        return self.model.vectors

    @property
    def max_rows(self) -> int:
        return max(1, self.model.budget // self.inputs.shape[1])

    def feature_mask(self) -> torch.Tensor:
        """Return the segment index of each token. Shape: (rows, width).

        Special tokens and padding, which are equal in the baseline, count as the first segment.
        """
        return self._segment_indices().clamp(min=0)

    @torch.no_grad()
    def vectors(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of tokens. Shape: (rows, width, size)."""
        found: torch.Tensor = self._vectors(inputs)
        return found

    def score_vectors(
        self, vectors: torch.Tensor, inputs: torch.Tensor, *extra: torch.Tensor
    ) -> torch.Tensor:
        with self._vectors.replaced(inputs, vectors):
            return self.score(inputs, *extra)

    def sum_vectors(self, values: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        return values.sum(-1)

    @property
    def dtype(self) -> torch.dtype:
        return self._vectors.dtype

    def segment_values(self, row: int, values: Values, *, per_segment: bool) -> Values:
        target = self.targets[row]
        tokens = values[self._columns(target)]
        join = _first_token if per_segment else _sum
        return np.array([join(tokens, segment) for segment in target.segments])

    def _segment_indices(self) -> torch.Tensor:
        """Return the index of the replaceable segment of each token; -1 for other tokens."""
        indices = torch.full_like(self.inputs, -1)
        for row, target in enumerate(self.targets):
            first = self._columns(target).start
            replaceable = [segment for segment in target.segments if not segment.special]
            for index, segment in enumerate(replaceable):
                indices[row, [first + token for token in segment.tokens]] = index
        return indices

    def _columns(self, target: AttributionTarget) -> slice:
        return unpadded(len(target.row), self.inputs.shape[1], self.model.padding.side)


@dataclass(frozen=True)
class ExplainedTextModel(ExplainedModel):
    """A model whose rows are tokens.

    Attributes:
        vectors: the vectors of its tokens; None if the format has no gradients.
        padding: padding ids and side.
        baseline_token_id: the id that replaces tokens in the baseline.
        padded_limit: the longest row that may share a forward with shorter ones.
    """

    vectors: TokenVectors | None
    padding: Padding
    baseline_token_id: int
    padded_limit: float = math.inf

    batch_type: ClassVar[type[AttributionBatch]] = TokenBatch
    rows_name: ClassVar[str] = "texts"
    cheaper: ClassVar[str] = (
        "lower n_steps or n_samples, use granularity word or input_x_gradient, or send a shorter"
        " text"
    )

    def group(self, targets: Sequence[AnyTarget]) -> Iterator[list[int]]:
        lengths = [len(target.row) for target in targets]
        return group_by_length(lengths, self.budget, MAX_PADDING_SHARE, self.padded_limit)


def _sum(row: Values, segment: Segment) -> float:
    return float(row[list(segment.tokens)].sum())


def _first_token(row: Values, segment: Segment) -> float:
    return 0.0 if segment.special else float(row[segment.tokens[0]])
