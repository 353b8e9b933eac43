"""Explanations of a label of a text: which words of the text, or of a pair of texts, drive it.

`target` is a label or its number, by default the predicted one: a class of the model, one of the
labels of the request, or one of the texts that are ranked by a query.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...config.messages import quote
from ...errors import BadRequest
from ...tasks import sentence_ranking, sequence_classification, zero_shot_classification
from ...tasks.base import Label
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, TextExplanationTarget, target_at
from .base import LabelTarget, as_integer, candidate_number


class ClassExplanation(Explanation):
    """Why a text got a label."""

    prediction: Label
    target: LabelTarget


class ClassTarget(TextExplanationTarget[sequence_classification.Task]):
    """Explains the logit of one class."""

    results = ClassExplanation
    example_target = 0

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [text for text in state.input.text if text is not None]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        return [target_at(state, 0, self.segments(state), "logits", (self._target(state),))]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        scores = self._scores(state)
        target = selected.index[0]
        return {
            "prediction": self.named(state, max(scores, key=scores.__getitem__), scores),
            "target": {**self.named(state, target, scores), "index": target},
        }

    def _scores(self, state: RequestState) -> dict[int, float]:
        """Return the score of each label, by its number; of a question the labels it allows."""
        item, outputs = state.input, state.outputs[0]
        if not item.options:
            return dict(enumerate(self.task.scores(item, outputs).tolist()))
        return dict(zip(item.options, self.task.decision(item, outputs), strict=False))

    def _target(self, state: RequestState) -> int:
        scores, target = self._scores(state), state.settings.target
        if target is None:
            return max(scores, key=scores.__getitem__)
        number = self.label_number(state, target)
        if number not in scores:
            raise BadRequest(f"target {quote(target)} is no option of the question; send one.")
        return number


class LabelExplanation(Explanation):
    """Why a text fits a label; `texts` are the text and, where there is one, the hypothesis."""

    texts: list[str]
    prediction: Label
    target: LabelTarget


class CandidateTarget(TextExplanationTarget[zero_shot_classification.Task]):
    """Explains the logit of one label, or of its entailment."""

    results = LabelExplanation
    example_target = 0

    def texts(self, state: RequestState, number: int) -> list[str]:
        return self.task.texts_read(state.input, number)

    def select(self, state: RequestState) -> list[AttributionTarget]:
        row, place = self.task.target(self._target(state))
        return [target_at(state, row, self.segments(state, row), "logits", (place,))]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        scores, number = self.task.scores(state.input, state.outputs), self._target(state)
        found = self.task.decision(scores) if state.input.is_decision else scores.tolist()
        labels: list[Label] = [
            {"label": label, "score": score}
            for label, score in zip(state.input.labels, found, strict=False)
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


class TextTarget(Label):
    """A text of the request, or a class of a pair; its label is the text or the class."""

    index: int


class RankingExplanation(Explanation):
    """Which words of a query and of one text drive its score; `texts` are both."""

    texts: list[str]
    prediction: TextTarget
    target: TextTarget


class RankingTarget(TextExplanationTarget[sentence_ranking.Task]):
    """Explains the logit of one text."""

    results = RankingExplanation
    example_target = 0

    def texts(self, state: RequestState, number: int) -> list[str]:
        return self.task.texts_read(state.input, number)

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
            return 0, int(logits[0].argmax()) if target is None else self.label_number(
                state, target
            )
        best = int(logits[:, 0].argmax())
        return best if target is None else as_integer(target, "target", len(logits)), 0

    def _named(self, state: RequestState, place: tuple[int, int]) -> TextTarget:
        row, label = place
        score = float(self.task.scores(state.input, state.outputs)[place])
        if self.task.labels:
            return {"label": self.task.labels[label], "score": score, "index": label}
        return {"label": state.input.texts[row], "score": score, "index": row}
