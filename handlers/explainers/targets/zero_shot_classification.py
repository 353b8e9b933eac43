"""Explanations of a label that the request names: which words of the text and hypothesis drive it.

`target` is a label, or its number in the request; by default the label with the highest score. Its
entailment logit is explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers._segments import segment_tokens
from handlers.explainers.targets._text import (
    Explanation,
    TextExplanationTarget,
    attribution_sums,
    normalized,
    segment_texts,
    target_at,
)
from handlers.explainers.targets.base import LabelTarget, candidate_number
from handlers.runtime.jobs import Job
from handlers.tasks.base import Label
from handlers.tasks.zero_shot_classification import Task, ZeroShotQuery


class LabelExplanation(Explanation):
    """Why a text fits a label; `texts` are the text and the hypothesis of the label."""

    texts: list[str]
    prediction: Label
    target: LabelTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the entailment logit of one label."""

    results = LabelExplanation
    example_target = 0

    def select(self, job: Job) -> list[AttributionTarget]:
        number = self._target(job)
        segments = segment_tokens(
            job.rows[number], _texts(job.query, number), job.settings.granularity
        )
        return [target_at(job, number, segments, "logits", (self.task.entailment,))]

    def to_response(
        self, job: Job, selected: Sequence[AttributionTarget], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        scores, number = self.task.scores(job.query, job.outputs), self._target(job)
        labels: list[Label] = [
            {"label": label, "score": score}
            for label, score in zip(job.query.labels, scores.tolist(), strict=True)
        ]
        return {
            **segment_texts(selected[0]),
            "texts": _texts(job.query, number),
            "importances": normalized(attributions[0]),
            "delta": attributions[0].delta,
            **attribution_sums(attributions[0]),
            "prediction": labels[int(scores.argmax())],
            "target": {**labels[number], "index": number},
        }

    def _target(self, job: Job) -> int:
        """Return the number of a label."""
        target = job.settings.target
        if target is None:
            return int(self.task.scores(job.query, job.outputs).argmax())
        return candidate_number(target, job.query.labels)


def _texts(query: ZeroShotQuery, number: int) -> list[str]:
    return [query.premise, query.hypotheses[number]]
