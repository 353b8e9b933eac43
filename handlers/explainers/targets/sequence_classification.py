"""Explanations of a text's label.

`target` is a class number or a label's name; the answer has the old example's `words`,
`importances` and `delta`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tasks.base import Label
from ...tasks.sequence_classification import Task
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, TextExplanationTarget, target_at
from .base import LabelTarget


class ClassExplanation(Explanation):
    """Why a text got a label."""

    prediction: Label
    target: LabelTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the logit of one class."""

    results = ClassExplanation
    example_target = 0

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [text for text in state.input.text if text is not None]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        return [target_at(state, 0, self.segments(state), "logits", (self._target(state),))]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        scores = self.task.scores(state.input, state.outputs[0])
        target = selected.index[0]
        return {
            "prediction": self.named(int(scores.argmax()), scores),
            "target": {**self.named(target, scores), "index": target},
        }

    def _target(self, state: RequestState) -> int:
        if state.settings.target is not None:
            return self.label_number(state.settings.target)
        return int(np.argmax(state.outputs[0]["logits"]))
