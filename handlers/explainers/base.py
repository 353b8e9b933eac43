"""The interface of explanation methods, and the batch of targets that they attribute."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from handlers.batching.padding import Batch, Padding, pad, unpadded
from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers._segments import Segment
from handlers.runtime.deadline import Deadline

Values = npt.NDArray[np.float64]
Forward = Callable[[Batch], Mapping[str, torch.Tensor]]


@dataclass(frozen=True)
class ExplainedModel:
    """The model to explain.

    Attributes:
        forward: runs a padded batch; differentiable if `embeddings` is set.
        embeddings: the input embedding layer; None if the format has no gradients.
        padding: padding ids and side.
        baseline_token_id: the id that replaces tokens in the baseline.
        budget: the maximum number of tokens per forward, padding included.
        deadline: the time limit.
        padded_limit: the longest row that may share a forward with shorter ones.
    """

    forward: Forward
    embeddings: torch.nn.Module | None
    padding: Padding
    baseline_token_id: int
    budget: int
    deadline: Deadline
    padded_limit: float = math.inf


class AttributionBatch:
    """Targets of one model output as a padded batch, in the form of arguments for Captum.

    Attributes:
        model: the model.
        targets: the targets, one for each row.
        ids: token ids. Shape: (rows, width).
        baseline: token ids of the baseline. Shape: (rows, width).
        extra: the other model inputs, and the indices of the targets or the vectors that they are
            compared with, each with a first dimension of rows: `additional_forward_args` of Captum.
    """

    def __init__(self, model: ExplainedModel, targets: Sequence[AttributionTarget]) -> None:
        self.model, self.targets = model, targets
        batch = pad([target.row for target in targets], model.padding)
        self.ids = batch.pop("input_ids")
        self._names = list(batch)
        self._output = targets[0].output
        self._comparison = targets[0].comparison
        self.extra = (*batch.values(), self._places())
        self.baseline = self._baseline()

    @property
    def embeddings(self) -> torch.nn.Module:
        """The input embedding layer of the model."""
        if self.model.embeddings is None:
            raise NotImplementedError
        return self.model.embeddings

    @property
    def max_rows(self) -> int:
        """The maximum number of rows of this width per forward; at least one."""
        return max(1, self.model.budget // self.ids.shape[1])

    def score(self, ids: torch.Tensor, *extra: torch.Tensor) -> torch.Tensor:
        """Return F of each row; the function that Captum attributes. Shape: (rows,)."""
        self.model.deadline.check()
        *inputs, places = extra
        batch = {"input_ids": ids, **dict(zip(self._names, inputs, strict=True))}
        output = self.model.forward(batch)[self._output].float()
        if self._comparison:
            return self._comparison.score(output, places).cpu()
        return output[(torch.arange(len(ids)), *places.T)].cpu()

    @torch.no_grad()
    def scores(self) -> list[tuple[float, float]]:
        """Return F of each row and of its baseline."""
        baselines = self.score(self.baseline, *self.extra).tolist()
        known = [target.score for target in self.targets if target.score is not None]
        complete = len(known) == len(self.targets)
        scores = known if complete else self.score(self.ids, *self.extra).tolist()
        return list(zip(scores, baselines, strict=True))

    def feature_mask(self) -> torch.Tensor:
        """Return the segment index of each token. Shape: (rows, width).

        Special tokens and padding, which are equal in the baseline, count as the first segment.
        """
        return self._segment_indices().clamp(min=0)

    def to_attributions(
        self, values: torch.Tensor, scores: Sequence[tuple[float, float]], *, per_segment: bool
    ) -> list[Attribution]:
        """Convert Captum's values for tokens to attributions for segments.

        Args:
            values: a value for each token. Shape: (rows, width).
            scores: F of each row and of its baseline.
            per_segment: whether each token has the value of its whole segment, as in perturbation
                methods, rather than a value that is summed over the segment.
        """
        token_values = values.detach().double().cpu().numpy()
        results = []
        for target, padded, ends in zip(self.targets, token_values, scores, strict=True):
            row = padded[self._columns(target)]
            join = _first_token if per_segment else _sum
            segments = np.array([join(row, segment) for segment in target.segments])
            results.append(Attribution(segments, *ends))
        return results

    def _places(self) -> torch.Tensor:
        """Return the index of each target, or the vector that it is compared with."""
        compared = [target.comparison.vector for target in self.targets if target.comparison]
        indices = [target.index for target in self.targets]
        return torch.stack(compared) if compared else torch.tensor(indices)

    def _segment_indices(self) -> torch.Tensor:
        """Return the index of the replaceable segment of each token; -1 for other tokens."""
        indices = torch.full_like(self.ids, -1)
        for row, target in enumerate(self.targets):
            first = self._columns(target).start
            replaceable = [segment for segment in target.segments if not segment.special]
            for index, segment in enumerate(replaceable):
                indices[row, [first + token for token in segment.tokens]] = index
        return indices

    def _baseline(self) -> torch.Tensor:
        return torch.where(self._segment_indices() >= 0, self.model.baseline_token_id, self.ids)

    def _columns(self, target: AttributionTarget) -> slice:
        return unpadded(len(target.row), self.ids.shape[1], self.model.padding.side)


class BaseExplainer(ABC):
    """An explanation method.

    Attributes:
        needs_gradients: whether it needs a format with gradients.
        complete: whether its values sum to the difference between output and baseline.
    """

    needs_gradients: ClassVar[bool]
    complete: ClassVar[bool]

    @abstractmethod
    def forwards(self, target: AttributionTarget, settings: Any) -> int:
        """Return the approximate number of forward passes for a target."""

    @abstractmethod
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        """Return the attribution of each target of a batch."""


def _sum(row: Values, segment: Segment) -> float:
    return float(row[list(segment.tokens)].sum())


def _first_token(row: Values, segment: Segment) -> float:
    return 0.0 if segment.special else float(row[segment.tokens[0]])


@contextmanager
def differentiable(embeddings: torch.nn.Module) -> Iterator[None]:
    """Make the output of the embeddings require gradients, although the weights do not."""
    handle = embeddings.register_forward_hook(lambda _module, _inputs, out: out.requires_grad_())
    try:
        yield
    finally:
        handle.remove()
