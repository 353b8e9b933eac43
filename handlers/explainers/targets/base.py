"""From a prediction to what is explained about it, and from attributions to the answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from handlers.errors import BadRequest, RequestError
from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers._runner import ExplanationRunner
from handlers.explainers._segments import Segment
from handlers.explainers.base import ExplainedModel
from handlers.runtime.jobs import Job
from handlers.tasks.base import BaseTask

TaskT = TypeVar("TaskT", bound=BaseTask[Any, Any])


class BaseExplanationTarget(ABC, Generic[TaskT]):
    """What a mode explains.

    Attributes:
        legacy_keys: the keys of an explanation of TorchServe's old example.
        default_method: the method where a request names none and the format has gradients.
        default_parameters: the mode's parameters where neither request nor YAML sets them.
    """

    legacy_keys: ClassVar[Sequence[str]] = ("words", "importances", "delta")
    default_method: ClassVar[str] = "layer_integrated_gradients"
    default_parameters: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, task: TaskT) -> None:
        self.task = task

    @abstractmethod
    def select(self, job: Job) -> list[AttributionTarget]:
        """Return what is to be explained.

        Raises:
            RequestError: when the target cannot be understood.
        """

    @abstractmethod
    def to_response(
        self, job: Job, selected: Sequence[AttributionTarget], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        """Return the explanation, ready for JSON; `method` is added to it."""

    def explain(
        self, jobs: Sequence[Job], model: ExplainedModel
    ) -> list[dict[str, Any] | RequestError]:
        """Return each case's explanation; one that fails has its error in its place."""
        return ExplanationRunner(self, model).explain(jobs)

    def label_number(self, target: Any) -> int:
        """Return the class that a number or a label's name means.

        Raises:
            BadRequest: when it means none.
        """
        labels = self.task.checkpoint.labels
        if isinstance(target, str) and target in labels:
            return labels.index(target)
        if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(labels):
            return target
        raise BadRequest(
            f"target {target!r} is no class; send a number from 0 to {len(labels) - 1} or one of "
            f"{', '.join(labels[:20])}."
        )


def target_at(
    job: Job, row: int, segments: Sequence[Segment], output: str, index: tuple[int, ...]
) -> AttributionTarget:
    """Return one number of a case's outputs as what is to be explained."""
    score = float(job.outputs[row][output][index])
    return AttributionTarget(job.rows[row], segments, output, index, score)


def segment_texts(selected_target: AttributionTarget) -> dict[str, Any]:
    """Return the pieces of an aim: their texts and where each lies in the text it came from."""
    return {
        "words": [segment.text for segment in selected_target.segments],
        "offsets": [[segment.start, segment.end] for segment in selected_target.segments],
        "sequence_ids": [segment.sequence for segment in selected_target.segments],
    }


def normalized(attribution: Attribution) -> list[float]:
    """Return the values over their Euclidean norm, as the old example gives importances."""
    values = attribution.values
    return [float(value) for value in values / (float(np.linalg.norm(values)) or 1.0)]


def attribution_sums(attribution: Attribution) -> dict[str, Any]:
    """Return the values before normalisation, and how well they sum to what they explain."""
    return {
        "attributions": [float(value) for value in attribution.values],
        "output": attribution.output,
        "baseline_output": attribution.baseline,
        "convergence_delta": attribution.delta,
        "converged": attribution.converged,
    }


def as_integer(value: Any, name: str, limit: int) -> int:
    """Return a number from 0 up to a limit that it does not reach.

    Raises:
        BadRequest: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise BadRequest(f"{name} must be a number from 0 to {limit - 1}, and is {value!r}.")
    return value


def require_keys(target: Mapping[str, Any], *keys: str) -> None:
    """Check the keys of a target that is an object.

    Raises:
        BadRequest: one is missing.
    """
    for key in keys:
        if key not in target:
            raise BadRequest(f"target has no {key}; it needs {' and '.join(keys)}.")
