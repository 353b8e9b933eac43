"""Explaining a batch: every request's aims, side by side, by the method that each asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from handlers.aims import Aim, Attribution
from handlers.attempts import attempt
from handlers.batching import by_length
from handlers.cases import Case
from handlers.deadline import DeadlinePassed
from handlers.errors import RequestError, Unprocessable
from handlers.explainers import explainer_class
from handlers.explainers.base import BaseExplainer, Scene, Subject
from handlers.explanation_parameters import ExplanationParameters


class Account(Protocol):
    """What explaining needs of a mode's account."""

    usual_method: ClassVar[str]

    def aims(self, case: Case) -> list[Aim]:
        """Return what is to be explained."""

    def tell(
        self, case: Case, aims: Sequence[Aim], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        """Return the explanation."""


NOT_CONVERGED = (
    "The attributions do not sum to the difference that they explain within 5%; ask for more "
    "n_steps or n_samples, or read them with care."
)
WASTE = 0.25  # Each row is computed many times over, so like is explained with like.
WITHOUT_GRADIENTS = "feature_ablation"


@dataclass(frozen=True)
class Job:
    """One aim, the explainer that is to attribute it, and what that costs in tokens."""

    aim: Aim
    method: str
    explainer: BaseExplainer
    settings: ExplanationParameters

    @property
    def cost(self) -> int:
        """About how many tokens will be computed."""
        return len(self.aim.row) * self.explainer.forwards(self.aim, self.settings)

    @property
    def company(self) -> Hashable:
        """What jobs must have in common to share forwards."""
        own = (self.settings.n_steps, self.settings.n_samples)
        return self.method, self.aim.output, len(self.aim.index), *own


class Explaining:
    """Explains the cases of one batch.

    Args:
        account: what this mode explains.
        subject: the model.
    """

    def __init__(self, account: Account, subject: Subject) -> None:
        self._account = account
        self._subject = subject

    def explain(self, cases: Sequence[Case]) -> list[dict[str, Any] | RequestError]:
        """Return each case's explanation; one that fails has its error in its place."""
        planned = [attempt(self._plan, case) for case in cases]
        jobs = [job for plan in planned if not isinstance(plan, RequestError) for job in plan]
        found = self._work(jobs)
        return [
            plan if isinstance(plan, RequestError) else attempt(self._tell, case, plan, found)
            for case, plan in zip(cases, planned, strict=True)
        ]

    def _plan(self, case: Case) -> list[Job]:
        method = method_for(case.settings, self._account, self._subject)
        explainer = explainer_class(method)()
        return [Job(aim, method, explainer, case.settings) for aim in self._account.aims(case)]

    def _work(self, jobs: Sequence[Job]) -> dict[int, Attribution | RequestError]:
        """Return outcomes by the jobs' identity; cheap groups first, as time may run out."""
        groups = sorted(self._groups(jobs), key=lambda group: max(job.cost for job in group))
        found: dict[int, Attribution | RequestError] = {}
        for group in groups:
            found |= zip(map(id, group), self._attribute(group), strict=True)
        return found

    def _groups(self, jobs: Sequence[Job]) -> Iterator[list[Job]]:
        companies: defaultdict[Hashable, list[Job]] = defaultdict(list)
        for job in jobs:
            companies[job.company].append(job)
        for company in companies.values():
            lengths = [len(job.aim.row) for job in company]
            for part in by_length(lengths, self._subject.budget, WASTE):
                yield [company[number] for number in part]

    def _attribute(self, group: Sequence[Job]) -> list[Attribution | RequestError]:
        """Attribute a group together, or each job alone when that fails."""
        together = attempt(self._attribute_together, group)
        if not isinstance(together, RequestError):
            return list(together)
        if len(group) == 1 or isinstance(together, Unprocessable):
            return [together] * len(group)
        return [outcome for job in group for outcome in self._attribute([job])]

    def _attribute_together(self, group: Sequence[Job]) -> list[Attribution]:
        job = group[0]
        try:
            scene = Scene(self._subject, [each.aim for each in group])
            return job.explainer.attribute(scene, job.settings)
        except DeadlinePassed:
            raise timed_out(job.method, self._subject.deadline.seconds) from None

    def _tell(
        self, case: Case, plan: Sequence[Job], found: dict[int, Attribution | RequestError]
    ) -> dict[str, Any]:
        attributions = []
        for job in plan:
            outcome = found[id(job)]
            if isinstance(outcome, RequestError):
                raise outcome
            attributions.append(outcome)
        told = self._account.tell(case, [job.aim for job in plan], attributions)
        return finished(told, plan[0].method)


def method_for(settings: ExplanationParameters, account: Account, subject: Subject) -> str:
    """Return the method that a request asked for, or the usual one.

    Raises:
        Unprocessable: it needs gradients, and this model's format has none.
    """
    gradients = subject.embeddings is not None
    method = settings.method or (account.usual_method if gradients else WITHOUT_GRADIENTS)
    if explainer_class(method).needs_gradients and not gradients:
        raise Unprocessable(
            f"method {method} needs gradients, and this model's save_mode has none"
            "; ask for feature_ablation, shapley_value_sampling or kernel_shap."
        )
    return method


def finished(told: dict[str, Any], method: str) -> dict[str, Any]:
    """Return an explanation with its method, and with a warning where that should sum but did not.

    Feature ablation and input x gradient do not claim to sum: for them `converged` is null.
    """
    if not explainer_class(method).complete:
        return {**told, "method": method, "converged": None, "warning": None}
    warning = None if told["converged"] else NOT_CONVERGED
    return {**told, "method": method, "warning": warning}


def timed_out(method: str, seconds: float) -> Unprocessable:
    """Return the error of an explanation that did not finish, with what to lower."""
    return Unprocessable(
        f"{method} did not finish within explain_timeout, {seconds:g} s; lower n_steps or "
        "n_samples, ask for granularity word or input_x_gradient, or send a shorter text."
    )
