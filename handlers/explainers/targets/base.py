"""The interface of an explanation target: selects what is explained and writes the response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from ...config.messages import enumerate_names, quote
from ...errors import BadRequest, RequestError
from ...model import Model
from ...process.deadline import Deadline
from ...tasks.base import BaseTask, Label
from ...types.parameters import ExplanationParameters, parameter_schemas
from ...types.request import Request, RequestState
from .. import methods_for
from ..base import AnyTarget, Attribution, ExplainedModel
from ..page import View
from ..runner import ExplanationRunner

TaskT = TypeVar("TaskT", bound=BaseTask[Any, Any])


class LabelTarget(Label):
    """The label that is explained, and its number."""

    index: int


class BaseExplanationTarget(ABC, Generic[TaskT]):
    """The explanation target of a mode: what is explained of a prediction.

    What modes with the same kind of rows have in common is in a base class of theirs:
    :class:`hf_serve.handlers.explainers.bases.text.TextExplanationTarget` and
    :class:`hf_serve.handlers.explainers.bases.image.ImageExplanationTarget`.

    Attributes:
        results: type of the explanation, for its schema.
        example_target: a value of `target` for the sample of the mode's task.
        example_parameters: quick ones, for examples.
        model_type: the model with rows of this kind, which the methods explain.
        legacy_keys: the keys of an explanation of TorchServe's old example.
        default_method: the method where a request names none and the format has gradients.
        default_without_gradients: that method where the format has none.
        default_parameters: the mode's parameters where neither request nor YAML sets them.
    """

    results: ClassVar[Any]
    example_target: ClassVar[Any]
    parameters: ClassVar[type[ExplanationParameters]]
    example_parameters: ClassVar[Mapping[str, Any]]
    model_type: ClassVar[type[ExplainedModel]]
    legacy_keys: ClassVar[Sequence[str]]
    default_method: ClassVar[str]
    default_without_gradients: ClassVar[str]
    default_parameters: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, task: TaskT) -> None:
        self.task = task

    @classmethod
    def method_by_default(cls, *, gradients: bool) -> str:
        """Return the method where a request names none."""
        return cls.default_method if gradients else cls.default_without_gradients

    @classmethod
    def parameter_schemas(cls, *, gradients: bool) -> dict[str, Any]:
        """Return the JSON schema of each parameter of an explanation by name.

        Args:
            gradients: whether the model's format has gradients.
        """
        methods = methods_for(cls.model_type.batch_type, gradients=gradients)
        method = {"enum": [*methods, None], "default": cls.method_by_default(gradients=gradients)}
        return {**parameter_schemas(cls.parameters, {}), "method": method}

    def parse(self, request: Request, settings: Any) -> Any:
        """Return the task's input of a request; a target that needs further rows adds them to it.

        Args:
            request: the request, with the parameters of the mode.
            settings: the parameters of the explanation.

        Raises:
            RequestError: it cannot be understood.
        """
        return self.task.parse(request)

    @abstractmethod
    def select(self, state: RequestState) -> Sequence[AnyTarget]:
        """Return the numbers to explain.

        Raises:
            RequestError: the target cannot be understood.
        """

    @abstractmethod
    def to_response(
        self, state: RequestState, selected: Sequence[Any], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        """Return the explanation, ready for JSON; `method` is added to it."""

    @staticmethod
    @abstractmethod
    def views(explanation: Mapping[str, Any]) -> Iterable[View]:
        """Return what the HTML page shows of an explanation: highlighted texts or pictures."""

    @abstractmethod
    def explained(self, model: Model, deadline: Deadline) -> ExplainedModel:
        """Return the model with the kind of its rows."""

    def explain(
        self, states: Sequence[RequestState], model: Model, deadline: Deadline
    ) -> list[dict[str, Any] | RequestError]:
        """Return the explanation of each request; one that fails has its error in its place."""
        return self.attribute(states, self.explained(model, deadline))

    def attribute(
        self, states: Sequence[RequestState], model: Any
    ) -> list[dict[str, Any] | RequestError]:
        """Return the explanation of each request; one that fails has its error in its place."""
        return ExplanationRunner(self, model).explain(states)

    def label_number(self, state: RequestState, target: Any) -> int:
        """Return the class of a number or of a label's name.

        Raises:
            BadRequest: there is no such class.
        """
        labels = self.task.labels_of(self.task.adapter_of(state.input))
        if isinstance(target, str) and target in labels:
            return labels.index(target)
        if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(labels):
            return target
        raise BadRequest(
            f"target {quote(target)} is no class; send a number from 0 to {len(labels) - 1} or one"
            f" of {enumerate_names(labels)}."
        )


def as_integer(value: Any, name: str, limit: int) -> int:
    """Return a number from 0 to below a limit.

    Raises:
        BadRequest: it is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise BadRequest(f"{name} must be a number from 0 to {limit - 1}, and is {quote(value)}.")
    return value


def candidate_number(target: Any, labels: Sequence[str]) -> int:
    """Return the number of one of the labels of a request, given by its name or its number.

    Raises:
        BadRequest: it is none of them.
    """
    if not isinstance(target, str):
        return as_integer(target, "target", len(labels))
    if target not in labels:
        raise BadRequest(
            f"target {quote(target)} is none of {enumerate_names(labels)}; send one of them, or its"
            " number."
        )
    return labels.index(target)


def require_keys(target: Mapping[str, Any], *keys: str) -> None:
    """Check the keys of a target that is an object.

    Raises:
        BadRequest: one is missing.
    """
    for key in keys:
        if key not in target:
            raise BadRequest(f"target has no {key}; it needs {' and '.join(keys)}.")
