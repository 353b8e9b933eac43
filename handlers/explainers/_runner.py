"""Explaining a batch: every request's aims, side by side, by the method that each asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from handlers import explainers
from handlers.batching.padding import group_by_length
from handlers.errors import RequestError, Unprocessable, attempt
from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers.base import AttributionBatch, BaseExplainer, ExplainedModel
from handlers.runtime.deadline import DeadlineExceeded
from handlers.runtime.jobs import Job
from handlers.schemas.explanation_parameters import ExplanationParameters

NOT_CONVERGED = (
    "The attributions do not sum to the difference that they explain within 5%; ask for more "
    "n_steps or n_samples, or read them with care."
)
WASTE = 0.25  # Each row is computed many times over, so like is explained with like.


class Selector(Protocol):
    """What the runner needs of a mode's explanation target."""

    usual_method: ClassVar[str]

    def select(self, job: Job) -> list[AttributionTarget]:
        """Return what is to be explained."""

    def to_response(
        self, job: Job, selected: Sequence[AttributionTarget], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        """Return the explanation."""


@dataclass(frozen=True)
class AttributionJob:
    """One aim, the explainer that is to attribute it, and what that costs in tokens."""

    target: AttributionTarget
    method: str
    explainer: BaseExplainer
    settings: ExplanationParameters

    @property
    def cost(self) -> int:
        """About how many tokens will be computed."""
        return len(self.target.row) * self.explainer.forwards(self.target, self.settings)

    @property
    def batch_key(self) -> Hashable:
        """What jobs must have in common to share forwards."""
        own = (self.settings.n_steps, self.settings.n_samples)
        return self.method, self.target.output, len(self.target.index), *own


class ExplanationRunner:
    """Explains the cases of one batch.

    Args:
        account: what this mode explains.
        subject: the model.
    """

    def __init__(self, explanation_target: Selector, model: ExplainedModel) -> None:
        self._target = explanation_target
        self._model = model

    def explain(self, jobs: Sequence[Job]) -> list[dict[str, Any] | RequestError]:
        """Return each case's explanation; one that fails has its error in its place."""
        planned = [attempt(self._plan, job) for job in jobs]
        items = [item for plan in planned if not isinstance(plan, RequestError) for item in plan]
        found = self._work(items)
        return [
            plan if isinstance(plan, RequestError) else attempt(self._to_response, job, plan, found)
            for job, plan in zip(jobs, planned, strict=True)
        ]

    def _plan(self, job: Job) -> list[AttributionJob]:
        method = method_for(job.settings, self._target, self._model)
        explainer = explainers.get(method)()
        return [
            AttributionJob(target, method, explainer, job.settings)
            for target in self._target.select(job)
        ]

    def _work(self, items: Sequence[AttributionJob]) -> dict[int, Attribution | RequestError]:
        """Return outcomes by the jobs' identity; cheap groups first, as time may run out."""
        groups = sorted(self._groups(items), key=lambda group: max(item.cost for item in group))
        found: dict[int, Attribution | RequestError] = {}
        for group in groups:
            found |= zip(map(id, group), self._attribute(group), strict=True)
        return found

    def _groups(self, items: Sequence[AttributionJob]) -> Iterator[list[AttributionJob]]:
        batches: defaultdict[Hashable, list[AttributionJob]] = defaultdict(list)
        for item in items:
            batches[item.batch_key].append(item)
        for group in batches.values():
            lengths = [len(item.target.row) for item in group]
            for part in group_by_length(lengths, self._model.budget, WASTE):
                yield [group[number] for number in part]

    def _attribute(self, group: Sequence[AttributionJob]) -> list[Attribution | RequestError]:
        """Attribute a group together, or each job alone when that fails."""
        together = attempt(self._attribute_together, group)
        if not isinstance(together, RequestError):
            return list(together)
        if len(group) == 1 or isinstance(together, Unprocessable):
            return [together] * len(group)
        return [outcome for item in group for outcome in self._attribute([item])]

    def _attribute_together(self, group: Sequence[AttributionJob]) -> list[Attribution]:
        item = group[0]
        try:
            batch = AttributionBatch(self._model, [each.target for each in group])
            return item.explainer.attribute(batch, item.settings)
        except DeadlineExceeded:
            raise timed_out(item.method, self._model.deadline.seconds) from None

    def _to_response(
        self,
        job: Job,
        plan: Sequence[AttributionJob],
        found: dict[int, Attribution | RequestError],
    ) -> dict[str, Any]:
        attributions = []
        for item in plan:
            outcome = found[id(item)]
            if isinstance(outcome, RequestError):
                raise outcome
            attributions.append(outcome)
        response = self._target.to_response(job, [item.target for item in plan], attributions)
        return with_method(response, plan[0].method)


def method_for(
    settings: ExplanationParameters, explanation_target: Selector, model: ExplainedModel
) -> str:
    """Return the method that a request asked for, or the usual one.

    Raises:
        Unprocessable: it needs gradients, and this model's format has none.
    """
    gradients = model.embeddings is not None
    method = settings.method or (
        explanation_target.usual_method if gradients else explainers.METHOD_WITHOUT_GRADIENTS
    )
    if explainers.get(method).needs_gradients and not gradients:
        raise Unprocessable(
            f"method {method} needs gradients, and this model's save_mode has none"
            "; ask for feature_ablation, shapley_value_sampling or kernel_shap."
        )
    return method


def with_method(response: dict[str, Any], method: str) -> dict[str, Any]:
    """Return an explanation with its method, and with a warning where that should sum but did not.

    Feature ablation and input x gradient do not claim to sum: for them `converged` is null.
    """
    if not explainers.get(method).complete:
        return {**response, "method": method, "converged": None, "warning": None}
    warning = None if response["converged"] else NOT_CONVERGED
    return {**response, "method": method, "warning": warning}


def timed_out(method: str, seconds: float) -> Unprocessable:
    """Return the error of an explanation that did not finish, with what to lower."""
    return Unprocessable(
        f"{method} did not finish within explain_timeout, {seconds:g} s; lower n_steps or "
        "n_samples, ask for granularity word or input_x_gradient, or send a shorter text."
    )
