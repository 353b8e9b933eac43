"""Explanations of a label that the request names: which words of the text and hypothesis drive it.

`target` is a label, or its number in the request; by default the label with the highest score. Its
entailment logit is explained.
"""

from __future__ import annotations

from typing import Any

from ...tasks.base import Label
from ...tasks.zero_shot_classification import Task
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, TextExplanationTarget, target_at
from .base import LabelTarget, candidate_number


class LabelExplanation(Explanation):
    """Why a text fits a label; `texts` are the text and the hypothesis of the label."""

    texts: list[str]
    prediction: Label
    target: LabelTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the entailment logit of one label."""

    results = LabelExplanation
    example_target = 0

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [state.input.premise, state.input.hypotheses[number]]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        number = self._target(state)
        segments = self.segments(state, number)
        return [target_at(state, number, segments, "logits", (self.task.entailment,))]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        scores, number = self.task.scores(state.input, state.outputs), self._target(state)
        labels: list[Label] = [
            {"label": label, "score": score}
            for label, score in zip(state.input.labels, scores.tolist(), strict=True)
        ]
        return {
            "texts": self.texts(state, number),
            "prediction": labels[int(scores.argmax())],
            "target": {**labels[number], "index": number},
        }

    def _target(self, state: RequestState) -> int:
        """Return the number of a label."""
        target = state.settings.target
        if target is None:
            return int(self.task.scores(state.input, state.outputs).argmax())
        return candidate_number(target, state.input.labels)
