"""Explanations of a label that the request names: which words of the text and hypothesis drive it.

`target` is a label, or its number in the request; by default the label with the highest score. Its
entailment logit is explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.explainers.base import Attribution, AttributionTarget
from handlers.explainers.bases.text import (
    Explanation,
    TextExplanationTarget,
    attribution_sums,
    normalized,
    segment_texts,
    segment_tokens,
    target_at,
)
from handlers.explainers.targets.base import LabelTarget, candidate_number
from handlers.tasks.base import Label
from handlers.tasks.zero_shot_classification import Task, ZeroShotInput
from handlers.types.request import RequestState


class LabelExplanation(Explanation):
    """Why a text fits a label; `texts` are the text and the hypothesis of the label."""

    texts: list[str]
    prediction: Label
    target: LabelTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the entailment logit of one label."""

    results = LabelExplanation
    example_target = 0

    def select(self, state: RequestState) -> list[AttributionTarget]:
        number = self._target(state)
        segments = segment_tokens(
            state.rows[number], _texts(state.input, number), state.settings.granularity
        )
        return [target_at(state, number, segments, "logits", (self.task.entailment,))]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[AttributionTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        scores, number = self.task.scores(state.input, state.outputs), self._target(state)
        labels: list[Label] = [
            {"label": label, "score": score}
            for label, score in zip(state.input.labels, scores.tolist(), strict=True)
        ]
        return {
            **segment_texts(selected[0]),
            "texts": _texts(state.input, number),
            "importances": normalized(attributions[0]),
            "delta": attributions[0].delta,
            **attribution_sums(attributions[0]),
            "prediction": labels[int(scores.argmax())],
            "target": {**labels[number], "index": number},
        }

    def _target(self, state: RequestState) -> int:
        """Return the number of a label."""
        target = state.settings.target
        if target is None:
            return int(self.task.scores(state.input, state.outputs).argmax())
        return candidate_number(target, state.input.labels)


def _texts(item: ZeroShotInput, number: int) -> list[str]:
    return [item.premise, item.hypotheses[number]]
