"""Why a text fits a query, or does not: which words of both drive its score.

`target` is the number of a text, by default of the best one. For a pair with several labels it
is a class number or a label's name, by default the class with the highest logit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tasks.base import Label
from ...tasks.sentence_ranking import Task
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, TextExplanationTarget, target_at
from .base import as_integer


class TextTarget(Label):
    """A text of the request, or a class of a pair; its label is the text or the class."""

    index: int


class RankingExplanation(Explanation):
    """Which words of a query and of one text drive its score; `texts` are both."""

    texts: list[str]
    prediction: TextTarget
    target: TextTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the logit of one text."""

    results = RankingExplanation
    example_target = 0

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [state.input.query, state.input.texts[number]]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        row, label = self._place(state, state.settings.target)
        return [target_at(state, row, self.segments(state, row), "logits", (label,))]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        place = self._place(state, state.settings.target)
        return {
            "texts": self.texts(state, place[0]),
            "prediction": self._named(state, self._place(state, None)),
            "target": self._named(state, place),
        }

    def _place(self, state: RequestState, target: Any) -> tuple[int, int]:
        """Return the numbers of a text and of a label."""
        logits = np.stack([each["logits"] for each in state.outputs])
        if self.task.labels:
            return 0, int(logits[0].argmax()) if target is None else self.label_number(target)
        best = int(logits[:, 0].argmax())
        return best if target is None else as_integer(target, "target", len(logits)), 0

    def _named(self, state: RequestState, place: tuple[int, int]) -> TextTarget:
        row, label = place
        score = float(self.task.scores(state.input, state.outputs)[place])
        if self.task.labels:
            return {"label": self.task.labels[label], "score": score, "index": label}
        return {"label": state.input.texts[row], "score": score, "index": row}
