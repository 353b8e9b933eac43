"""Runs the explanations of a batch, and shares the time for them among its requests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .. import explainers
from ..batching.padding import memory_errors
from ..config.messages import enumerate_names
from ..errors import (
    DeadlineExceeded,
    DeviceFailed,
    NotFinite,
    OutOfMemory,
    RequestError,
    Unprocessable,
    attempt,
)
from ..process.deadline import Deadline
from ..types.parameters import ExplanationParameters
from ..types.request import RequestState
from .base import AnyTarget, Attribution, BaseExplainer, ExplainedModel


def weights_of(http_request_ids: Sequence[int]) -> list[float]:
    """Return the weight of each item; the weights of the items of one HTTP request sum to 1."""
    counts = Counter(http_request_ids)
    return [1 / counts[number] for number in http_request_ids]


class TimeShares:
    """Divides the time that is left among items; what one does not use is left for later ones.

    Args:
        cheaper: how to ask for what takes less time, for errors.
    """

    def __init__(self, deadline: Deadline, weights: Sequence[float], cheaper: str) -> None:
        self.deadline = deadline
        self._cheaper = cheaper
        self._alone = sum(weights) < 1.5
        self._left = sum(weights)

    def take(self, weights: Sequence[float]) -> Deadline:
        """Return the time limit of some items that run together.

        Of several a part is kept in case that one takes too long: the others run again alone.
        """
        weight = sum(weights)
        kept = max(weights) if len(weights) > 1 and not self._alone else 0.0
        parts = max(1.0, (self._left + kept) / weight)
        self._left -= weight
        return self.deadline.share(parts)

    def give_back(self, weights: Sequence[float]) -> None:
        """Count items that will run again."""
        self._left += sum(weights)

    def timed_out(self, method: str, share: Deadline) -> RequestError:
        """Return the error of an item that was not finished in its share.

        With the whole time, the request is too expensive for this model; with a part, it may be
        finished in another batch.
        """
        seconds = self.deadline.seconds
        if self._alone:
            return Unprocessable(
                f"{method} did not finish within explain_timeout, {seconds:g} s; {self._cheaper}."
            )
        return DeadlineExceeded(
            f"{method} did not finish within {share.seconds:.3g} s, its share of explain_timeout,"
            f" {seconds:g} s for the whole batch; send it again, {self._cheaper}."
        )


NOT_CONVERGED = (
    "The attributions do not sum to the difference that they explain within 5%; set a larger "
    "n_steps or n_samples, or use them with caution."
)
NOT_FINITE = (
    "The attributions of this request are no finite numbers; use method feature_ablation, or set "
    "dtype: float32 in the YAML of the model."
)


class Selector(Protocol):
    """The part of an explanation target that the runner uses."""

    @classmethod
    def method_by_default(cls, *, gradients: bool) -> str:
        """Return the method where a request names none."""

    def select(self, state: RequestState) -> Sequence[AnyTarget]:
        """Return the model outputs to explain."""

    def to_response(
        self, state: RequestState, selected: Sequence[Any], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        """Return the response for a request."""


@dataclass(eq=False)
class AttributionJob:
    """A target with the explainer, the parameters and the HTTP request of its request.

    Attributes:
        weight: its part of the time for all items.
        outcome: its attribution, or its error, once it has run.
    """

    target: AnyTarget
    method: str
    explainer: BaseExplainer
    settings: ExplanationParameters
    http_request_id: int
    weight: float = 0.0
    outcome: Attribution | RequestError = field(init=False)

    @property
    def cost(self) -> int:
        """Approximate number of tokens or pixels to compute."""
        cost: int = self.target.row.cost
        return cost * self.explainer.forwards(self.target, self.settings)

    @property
    def batch_key(self) -> Hashable:
        """The properties that items must have in common to share forward passes."""
        comparison = self.target.comparison
        key = comparison and comparison.batch_key
        settings = self.explainer.batch_key(self.settings)
        return self.method, self.target.output, len(self.target.index), key, settings


class ExplanationRunner:
    """Explains the requests of one batch."""

    def __init__(self, explanation_target: Selector, model: ExplainedModel) -> None:
        self._target = explanation_target
        self._model = model

    def explain(self, states: Sequence[RequestState]) -> list[dict[str, Any] | RequestError]:
        """Return the explanation or the error of each request, in their order."""
        planned = [attempt(self._plan, state) for state in states]
        items = [item for plan in planned if not isinstance(plan, RequestError) for item in plan]
        self._run(items)
        return [
            plan if isinstance(plan, RequestError) else attempt(self._to_response, state, plan)
            for state, plan in zip(states, planned, strict=True)
        ]

    def _plan(self, state: RequestState) -> list[AttributionJob]:
        method = method_for(state.settings, self._target, self._model)
        explainer = explainers.get(method)()
        return [
            AttributionJob(target, method, explainer, state.settings, state.http_request_id)
            for target in self._target.select(state)
        ]

    def _run(self, items: Sequence[AttributionJob]) -> None:
        """Set the outcomes of items; cheap groups run first and leave time unused."""
        weights = weights_of([item.http_request_id for item in items])
        for item, weight in zip(items, weights, strict=True):
            item.weight = weight
        shares = TimeShares(self._model.deadline, weights, self._model.cheaper)
        groups = self._groups(items)
        for group in sorted(groups, key=lambda group: max(item.cost for item in group)):
            self._attribute(group, shares)

    def _groups(self, items: Sequence[AttributionJob]) -> Iterator[list[AttributionJob]]:
        batches: defaultdict[Hashable, list[AttributionJob]] = defaultdict(list)
        for item in items:
            batches[item.batch_key].append(item)
        for group in batches.values():
            for part in self._model.group([item.target for item in group]):
                yield [group[index] for index in part]

    def _attribute(self, group: Sequence[AttributionJob], shares: TimeShares) -> None:
        """Attribute a group together, or each item alone if that fails."""
        weights = [item.weight for item in group]
        together = attempt(self._attribute_together, group, shares.take(weights), shares)
        if not isinstance(together, RequestError):
            for item, attribution in zip(group, together, strict=True):
                item.outcome = attribution
        elif len(group) == 1 or isinstance(together, (Unprocessable, DeviceFailed)):
            for item in group:
                item.outcome = together
        else:
            shares.give_back(weights)
            for item in sorted(group, key=lambda item: item.cost):
                self._attribute([item], shares)

    def _attribute_together(
        self, group: Sequence[AttributionJob], share: Deadline, shares: TimeShares
    ) -> list[Attribution]:
        item, model = group[0], replace(self._model, deadline=share)
        try:
            return _attribute_in_memory(item, model, [each.target for each in group])
        except DeadlineExceeded:
            raise shares.timed_out(item.method, share) from None

    def _to_response(self, state: RequestState, plan: Sequence[AttributionJob]) -> dict[str, Any]:
        attributions = []
        for item in plan:
            if isinstance(item.outcome, RequestError):
                raise item.outcome
            if not item.outcome.is_finite:
                raise NotFinite(NOT_FINITE)
            attributions.append(item.outcome)
        response = self._target.to_response(state, [item.target for item in plan], attributions)
        return with_method(response, plan[0].method)


def _attribute_in_memory(
    item: AttributionJob, model: ExplainedModel, targets: Sequence[AnyTarget]
) -> list[Attribution]:
    """Attribute targets; a single one that memory does not suffice for in smaller passes."""
    try:
        with memory_errors():
            return item.explainer.attribute(model.batch(targets), item.settings)
    except OutOfMemory:
        smallest = max(target.row.cost for target in targets)
        if len(targets) > 1 or model.budget <= smallest:
            raise
        smaller = replace(model, budget=max(smallest, model.budget // 2))
    return _attribute_in_memory(item, smaller, targets)


def method_for(
    settings: ExplanationParameters, explanation_target: Selector, model: ExplainedModel
) -> str:
    """Return the method of a request, or the default one.

    Raises:
        Unprocessable: the method does not attribute rows of this kind, or it needs gradients, and
            the format of the model has none.
    """
    gradients = model.has_gradients
    method = settings.method or explanation_target.method_by_default(gradients=gradients)
    fitting = explainers.methods_for(model.batch_type, gradients=gradients)
    if method in fitting:
        return method
    if not issubclass(model.batch_type, explainers.get(method).takes):
        reason = f"does not explain {model.rows_name}"
    else:
        reason = "needs gradients, which this model or its save_mode does not have"
    raise Unprocessable(f"method {method} {reason}; use {enumerate_names(fitting)}.")


def with_method(response: dict[str, Any], method: str) -> dict[str, Any]:
    """Add the method to a response, and a warning if a complete method did not converge.

    `converged` is null for methods that are not complete: feature ablation and input x gradient.
    """
    if not explainers.get(method).complete:
        return {**response, "method": method, "converged": None, "warning": None}
    warning = None if response["converged"] else NOT_CONVERGED
    return {**response, "method": method, "warning": warning}
