"""The interface of an explanation target: selects what is explained and writes the response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from typing_extensions import TypedDict

from handlers.config.quoting import enumerate_names, quote
from handlers.errors import BadRequest, RequestError
from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers._page import target_view
from handlers.explainers._runner import ExplanationRunner
from handlers.explainers._segments import Segment
from handlers.explainers.base import ExplainedModel
from handlers.runtime.deadline import Deadline
from handlers.runtime.jobs import Job
from handlers.runtime.model import Model
from handlers.schemas.explanation_parameters import ExplanationParameters
from handlers.schemas.request import Request
from handlers.tasks._text import TextTask
from handlers.tasks.base import Label

TaskT = TypeVar("TaskT", bound=TextTask[Any, Any])


class Segments(TypedDict):
    """The tokens or words of an explanation, and its method.

    `offsets` are the first character of each and the one after its last, in the text whose number
    is in `sequence_ids`; null there means a special token. `converged` is null for methods whose
    attributions need not sum to the output.
    """

    words: list[str]
    offsets: list[tuple[int, int]]
    sequence_ids: list[int | None]
    method: str
    converged: bool | None
    warning: str | None


class Attributions(TypedDict):
    """A number for each word; their sum is `output` - `baseline_output` up to a delta."""

    attributions: list[float]
    output: float
    baseline_output: float
    convergence_delta: float


class Explanation(Segments, Attributions):
    """An explanation of one number; `importances` are the normalised attributions."""

    importances: list[float]
    delta: float


class Place(Label):
    """A label of some characters of the text."""

    start: int
    end: int


class BaseExplanationTarget(ABC, Generic[TaskT]):
    """The explanation target of a mode: what is explained of a prediction.

    Attributes:
        results: type of the explanation, for its schema.
        example_target: a value of `target` for the sample of the mode's task.
        legacy_keys: the keys of an explanation of TorchServe's old example.
        default_method: the method where a request names none and the format has gradients.
        default_parameters: the mode's parameters where neither request nor YAML sets them.
    """

    results: ClassVar[Any]
    example_target: ClassVar[Any]
    legacy_keys: ClassVar[Sequence[str]] = ("words", "importances", "delta")
    default_method: ClassVar[str] = "layer_integrated_gradients"
    default_parameters: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, task: TaskT) -> None:
        self.task = task

    def parse(self, request: Request, settings: ExplanationParameters) -> Any:
        """Return the query of a request; a target that has rows of its own adds them to it.

        Args:
            request: the request, with the parameters of the mode.
            settings: the parameters of the explanation.

        Raises:
            RequestError: it cannot be understood.
        """
        return self.task.parse(request)

    @abstractmethod
    def select(self, job: Job) -> list[AttributionTarget]:
        """Return the numbers to explain.

        Raises:
            RequestError: the target cannot be understood.
        """

    @abstractmethod
    def to_response(
        self, job: Job, selected: Sequence[AttributionTarget], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        """Return the explanation, ready for JSON; `method` is added to it."""

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[float]]]:
        """Yield titles and importances of the highlighted texts on the HTML page."""
        return target_view(explanation)

    def explain(
        self, jobs: Sequence[Job], model: Model, deadline: Deadline
    ) -> list[dict[str, Any] | RequestError]:
        """Return the explanation of each job; one that fails has its error in its place.

        Args:
            jobs: the jobs, with their outputs.
            model: the model, which nothing else runs meanwhile.
            deadline: the time limit.
        """
        explained = ExplainedModel(
            forward=model.forward_with_gradients,
            # A model that is loaded for explanations has them only now.
            embeddings=model.embeddings,
            padding=self.task.padding,
            baseline_token_id=self.task.checkpoint.baseline_token_id,
            budget=0 if model.runs_alone else self.task.budget,
            deadline=deadline,
            padded_limit=model.padded_limit,
        )
        return self.attribute(jobs, explained)

    def attribute(
        self, jobs: Sequence[Job], model: ExplainedModel
    ) -> list[dict[str, Any] | RequestError]:
        """Return the explanation of each job; one that fails has its error in its place."""
        return ExplanationRunner(self, model).explain(jobs)

    def label_number(self, target: Any) -> int:
        """Return the class of a number or of a label's name.

        Raises:
            BadRequest: there is no such class.
        """
        labels = self.task.checkpoint.labels
        if isinstance(target, str) and target in labels:
            return labels.index(target)
        if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(labels):
            return target
        raise BadRequest(
            f"target {quote(target)} is no class; send a number from 0 to {len(labels) - 1} or one"
            f" of {enumerate_names(labels)}."
        )


def target_at(
    job: Job, row: int, segments: Sequence[Segment], output: str, index: tuple[int, ...]
) -> AttributionTarget:
    """Return one number of a job's outputs as a target of attribution."""
    score = float(job.outputs[row][output][index])
    return AttributionTarget(job.rows[row], segments, output, index, score)


def segment_texts(selected_target: AttributionTarget) -> dict[str, Any]:
    """Return the segments of a target: their texts and their offsets in the inputs."""
    return {
        "words": [segment.text for segment in selected_target.segments],
        "offsets": [[segment.start, segment.end] for segment in selected_target.segments],
        "sequence_ids": [segment.sequence for segment in selected_target.segments],
    }


def normalized(attribution: Attribution) -> list[float]:
    """Return the values divided by their Euclidean norm, the importances of the old example."""
    values = attribution.values
    return [float(value) for value in values / (float(np.linalg.norm(values)) or 1.0)]


def attribution_sums(attribution: Attribution) -> dict[str, Any]:
    """Return the values without normalisation, and the error of their sum."""
    return {
        "attributions": [float(value) for value in attribution.values],
        "output": attribution.output,
        "baseline_output": attribution.baseline,
        "convergence_delta": attribution.delta,
        "converged": attribution.converged,
    }


def as_integer(value: Any, name: str, limit: int) -> int:
    """Return a number from 0 to below a limit.

    Raises:
        BadRequest: it is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise BadRequest(f"{name} must be a number from 0 to {limit - 1}, and is {quote(value)}.")
    return value


def require_keys(target: Mapping[str, Any], *keys: str) -> None:
    """Check the keys of a target that is an object.

    Raises:
        BadRequest: one is missing.
    """
    for key in keys:
        if key not in target:
            raise BadRequest(f"target has no {key}; it needs {' and '.join(keys)}.")
