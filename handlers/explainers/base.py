"""The interface of explanation methods, and of what they attribute: targets, batches and models.

What a row is made of, tokens or pixels, is known to an :class:`ExplainedModel` and to its
:class:`AttributionBatch` alone. A method works with `inputs` and a `baseline` of the same shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import TypeVar

from ..batching.padding import Tensors
from ..batching.rows import BaseRow, Row
from ..checkpoints.sentence_transformers import SIMILARITIES
from ..process.deadline import Deadline
from ..process.ranks import seeded

RowT = TypeVar("RowT", bound=BaseRow, default=Row)
SegmentsT = TypeVar("SegmentsT", bound=Sized, default=Sequence[Any])

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
        normalizes: whether these dimensions get a length of 1 before they are compared.
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
        first_dimensions = outputs[:, : arguments.shape[1]]
        if self.normalizes:
            first_dimensions = torch.nn.functional.normalize(first_dimensions, dim=-1)
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


Values = npt.NDArray[np.float64]
Forward = Callable[[Tensors], Mapping[str, torch.Tensor]]
AnyTarget = AttributionTarget[Any, Any]


@dataclass(frozen=True)
class ExplainedModel(ABC):
    """The model to explain, with the kind of its rows.

    Attributes:
        forward: runs a batch; differentiable if the model has gradients.
        has_gradients: whether the format has gradients.
        budget: the maximum cost of the rows in one forward, padding included.
        batch_type: the batches of its rows.
        rows_name: what its rows are, for errors.
        cheaper: how to ask for an explanation that takes less time, for errors.
    """

    forward: Forward
    has_gradients: bool
    budget: int
    deadline: Deadline

    batch_type: ClassVar[type[AttributionBatch]]
    rows_name: ClassVar[str]
    cheaper: ClassVar[str]

    @abstractmethod
    def group(self, targets: Sequence[AnyTarget]) -> Iterator[list[int]]:
        """Yield groups of indices of targets whose rows share a forward within the budget."""

    def batch(self, targets: Sequence[AnyTarget]) -> AttributionBatch:
        """Return targets of one model output as a batch."""
        return self.batch_type(self, targets)


class AttributionBatch(ABC):
    """Targets of one model output as a batch, in the form of arguments for Captum.

    Attributes:
        inputs: the model input that is attributed. The first dimension has the rows.
        baseline: what replaces the inputs; of the same shape.
        extra: the other model inputs, and the indices of the targets or the arguments of their
            comparisons, each with a first dimension of rows: `additional_forward_args` of Captum.
        input_name: the name of the model input that is attributed.
    """

    input_name: ClassVar[str]

    def __init__(self, model: Any, targets: Sequence[AnyTarget]) -> None:
        self.model, self.targets = model, targets
        batch = self.collate()
        self.inputs = batch.pop(self.input_name)
        self._shared = {name: batch.pop(name) for name in self.shared_inputs}
        self._names = list(batch)
        self._output = targets[0].output
        self._comparison = targets[0].comparison
        self.extra = (*batch.values(), self._places())
        self.baseline = self.baseline_inputs()

    @abstractmethod
    def collate(self) -> Tensors:
        """Return the rows of the targets as one batch of the model."""

    @property
    def shared_inputs(self) -> Sequence[str]:
        """The names of the model inputs that rows share, which have no dimension of rows."""
        return ()

    @abstractmethod
    def baseline_inputs(self) -> torch.Tensor:
        """Return what replaces the inputs, in their shape."""

    @property
    @abstractmethod
    def max_rows(self) -> int:
        """The maximum number of rows of this size per forward; at least one."""

    @abstractmethod
    def feature_mask(self) -> torch.Tensor:
        """Return the index of the segment of each input; of a shape that expands to the inputs."""

    @abstractmethod
    def vectors(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return inputs as numbers that have gradients: the vectors of tokens, or pixels."""

    @abstractmethod
    def score_vectors(
        self, vectors: torch.Tensor, inputs: torch.Tensor, *extra: torch.Tensor
    ) -> torch.Tensor:
        """Return F of each row, computed with these vectors for its inputs. Shape: (rows,)."""

    @abstractmethod
    def sum_vectors(self, values: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        """Return the sums of values of vectors: one for each token, or for each patch.

        Args:
            rows: the row of the batch that each is of, the first dimension.
        """

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The data type that the model computes in."""

    @abstractmethod
    def segment_values(self, row: int, values: Values, *, per_segment: bool) -> Values:
        """Return the value of each segment of a row. Shape: (segments,).

        Args:
            per_segment: whether each input has the value of its whole segment.
        """

    def score(self, inputs: torch.Tensor, *extra: torch.Tensor) -> torch.Tensor:
        """Return F of each row; the function that Captum attributes. Shape: (rows,)."""
        self.model.deadline.check_together()
        *others, places = extra
        of_rows = dict(zip(self._names, others, strict=True))
        batch = {self.input_name: inputs, **of_rows, **self._shared}
        output = self.model.forward(batch)[self._output].float()
        if self._comparison:
            return self._comparison.score(output, places).cpu()
        return output[(torch.arange(len(inputs)), *places.T)].cpu()

    @torch.no_grad()
    def scores(self) -> list[tuple[float, float]]:
        """Return F of each row and of its baseline."""
        baselines = self.score(self.baseline, *self.extra).tolist()
        known = [target.score for target in self.targets if target.score is not None]
        complete = len(known) == len(self.targets)
        scores = known if complete else self.score(self.inputs, *self.extra).tolist()
        return list(zip(scores, baselines, strict=True))

    def to_attributions(
        self, values: torch.Tensor, scores: Sequence[tuple[float, float]], *, per_segment: bool
    ) -> list[Attribution]:
        """Convert Captum's values to attributions for segments.

        Args:
            values: what `sum_vectors` returns or, of each segment, a value for each of its inputs.
                The first dimension has the rows.
            scores: F of each row and of its baseline.
            per_segment: whether each input has the value of its whole segment, as in perturbation
                methods, rather than a value that is summed over the segment.
        """
        rows = values.detach().double().cpu().numpy()
        return [
            Attribution(self.segment_values(number, row, per_segment=per_segment), *ends)
            for number, (row, ends) in enumerate(zip(rows, scores, strict=True))
        ]

    def _places(self) -> torch.Tensor:
        """Return the index of each target, or what its comparison scores it with."""
        compared = [target.comparison.argument for target in self.targets if target.comparison]
        indices = [target.index for target in self.targets]
        return torch.stack(compared) if compared else torch.tensor(indices)


class BaseExplainer(ABC):
    """An explanation method.

    Attributes:
        needs_gradients: whether it needs a format with gradients.
        complete: whether its values sum to the difference between output and baseline.
        takes: the batches that it attributes; by default batches of every kind of rows.
    """

    needs_gradients: ClassVar[bool]
    complete: ClassVar[bool]
    takes: ClassVar[type[Any]] = AttributionBatch

    @abstractmethod
    def forwards(self, target: AnyTarget, settings: Any) -> int:
        """Return the approximate number of forward passes for a target."""

    @abstractmethod
    def attribute(self, batch: Any, settings: Any) -> list[Attribution]:
        """Return the attribution of each target of a batch of `takes`."""

    def batch_key(self, settings: Any) -> Hashable:
        """Return the settings that targets must have in common to be attributed together."""
        return settings.n_steps, settings.n_samples


class PerturbationExplainer(BaseExplainer):
    """Explains by a method of Captum that takes masks of features.

    Attributes:
        captum_class: the name of its class in `captum.attr`.
    """

    captum_class: ClassVar[str]
    needs_gradients = False
    complete = True

    @torch.no_grad()
    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        groups = list(self.group_rows(batch.feature_mask()))
        found = torch.cat([self._attribute_rows(batch, rows, settings) for rows in groups])
        places = torch.tensor([row for rows in groups for row in rows]).argsort()
        return batch.to_attributions(found[places], batch.scores(), per_segment=True)

    def group_rows(self, feature_mask: torch.Tensor) -> Iterator[list[int]]:
        """Yield the rows that Captum attributes together, with the same random numbers.

        A method that draws any yields rows whose numbers are the same alone.
        """
        yield list(range(len(feature_mask)))

    def method(self, feature_mask: torch.Tensor, settings: Any) -> tuple[str, Mapping[str, Any]]:
        """Return the name of Captum's class for some rows, and its further arguments."""
        return self.captum_class, {}

    def _attribute_rows(
        self, batch: AttributionBatch, rows: Sequence[int], settings: Any
    ) -> torch.Tensor:
        from captum import attr  # noqa: PLC0415 - at the first explanation

        chosen = list(rows)
        feature_mask = batch.feature_mask()[chosen]
        name, options = self.method(feature_mask, settings)
        with seeded(0):
            found = getattr(attr, name)(batch.score).attribute(
                batch.inputs[chosen],
                baselines=batch.baseline[chosen],
                additional_forward_args=tuple(each[chosen] for each in batch.extra),
                feature_mask=feature_mask,
                perturbations_per_eval=max(1, batch.max_rows // len(chosen)),
                **options,
            )
        return torch.as_tensor(found)


def segment_count(feature_mask: torch.Tensor) -> int:
    """Return the number of segments of some rows, which have as many each."""
    return int(feature_mask.max()) + 1
