"""What every explainer sees, a model as a function of token ids, and what it gives."""

from __future__ import annotations

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
    """The model to be explained.

    Attributes:
        forward: a padded batch to outputs; differentiable where `embeddings` is given.
        embeddings: the module that turns ids into vectors; None where there are no gradients.
        padding: how rows are padded.
        nothing: the id that a missing piece is replaced by.
        budget: tokens that one forward may hold.
        deadline: when to stop.
    """

    forward: Forward
    embeddings: torch.nn.Module | None
    padding: Padding
    baseline_token_id: int
    budget: int
    deadline: Deadline


class AttributionBatch:
    """Aims of one output, padded side by side, as Captum wants them: tensors and a function."""

    def __init__(self, model: ExplainedModel, targets: Sequence[AttributionTarget]) -> None:
        self.model, self.targets = model, targets
        batch = pad([target.row for target in targets], model.padding)
        self.ids = batch.pop("input_ids")
        self._names = list(batch)
        self._output = targets[0].output
        picks = torch.tensor([target.index for target in targets])
        self.extra = (*batch.values(), picks)
        self.baseline = self._baseline()

    @property
    def embeddings(self) -> torch.nn.Module:
        """The module that turns ids into vectors, where the format has one."""
        if self.model.embeddings is None:
            raise NotImplementedError
        return self.model.embeddings

    @property
    def rows_at_once(self) -> int:
        """How many rows of this width one forward may hold."""
        return max(len(self.targets), self.model.budget // self.ids.shape[1])

    def score(self, ids: torch.Tensor, *extra: torch.Tensor) -> torch.Tensor:
        """Return F of each row. Shape: (rows,)."""
        self.model.deadline.check()
        *inputs, picks = extra
        batch = {"input_ids": ids, **dict(zip(self._names, inputs, strict=True))}
        output = self.model.forward(batch)[self._output].float()
        return output[(torch.arange(len(ids)), *picks.T)].cpu()

    @torch.no_grad()
    def ends(self) -> list[tuple[float, float]]:
        """Return F of each row and F of its baseline."""
        baselines = self.score(self.baseline, *self.extra).tolist()
        known = [target.score for target in self.targets if target.score is not None]
        whole = len(known) == len(self.targets)
        scores = known if whole else self.score(self.ids, *self.extra).tolist()
        return list(zip(scores, baselines, strict=True))

    def features(self) -> torch.Tensor:
        """Return the piece number of each token; tokens that never change count to the first."""
        return self._numbers().clamp(min=0)

    def attributions(
        self, tokens: torch.Tensor, ends: Sequence[tuple[float, float]], *, shared: bool
    ) -> list[Attribution]:
        """Return Captum's values a token as values a piece.

        Args:
            tokens: a value for each token. Shape: (rows, width).
            ends: F of each row and of its baseline.
            shared: whether each token of a piece carries the value of the whole piece, as
                perturbation methods give it, or its own part.
        """
        values = tokens.detach().double().cpu().numpy()
        results = []
        for target, own, scores in zip(self.targets, values, ends, strict=True):
            row = own[self._own(target)]
            join = _whole if shared else _parts
            segments = np.array([join(row, segment) for segment in target.segments])
            results.append(Attribution(segments, *scores))
        return results

    def _numbers(self) -> torch.Tensor:
        """Return the number of the changeable piece that each token belongs to; -1 for none."""
        numbers = torch.full_like(self.ids, -1)
        for place, target in enumerate(self.targets):
            first = self._own(target).start
            changeable = [segment for segment in target.segments if not segment.special]
            for number, segment in enumerate(changeable):
                numbers[place, [first + token for token in segment.tokens]] = number
        return numbers

    def _baseline(self) -> torch.Tensor:
        return torch.where(self._numbers() >= 0, self.model.baseline_token_id, self.ids)

    def _own(self, target: AttributionTarget) -> slice:
        return unpadded(len(target.row), self.ids.shape[1], self.model.padding.side)


class BaseExplainer(ABC):
    """A family of Captum methods.

    Attributes:
        needs_gradients: whether it works on formats that only run forward.
        complete: whether its values sum to the difference that they explain.
    """

    needs_gradients: ClassVar[bool]
    complete: ClassVar[bool]

    @abstractmethod
    def forwards(self, target: AttributionTarget, settings: Any) -> int:
        """Return about how many forwards of its row an aim takes."""

    @abstractmethod
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        """Return an attribution for each aim of a scene."""


def _parts(row: Values, segment: Segment) -> float:
    return float(row[list(segment.tokens)].sum())


def _whole(row: Values, segment: Segment) -> float:
    return 0.0 if segment.special else float(row[segment.tokens[0]])


@contextmanager
def differentiable(embeddings: torch.nn.Module) -> Iterator[None]:
    """Let gradients reach the embeddings' output, though the weights take none."""
    handle = embeddings.register_forward_hook(lambda _module, _inputs, out: out.requires_grad_())
    try:
        yield
    finally:
        handle.remove()
