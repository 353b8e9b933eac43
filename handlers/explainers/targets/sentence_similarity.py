"""Which words of two sentences drive their similarity.

`target` is the number of a sentence, by default that of the most similar one. Each side is
explained with the vector of the other as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from handlers.checkpoints.sentence_transformers import OUTPUT
from handlers.explainers._attribution import Attribution, AttributionTarget, Comparison
from handlers.explainers._segments import segment_tokens
from handlers.explainers.targets._text import (
    Attributions,
    Segments,
    TextExplanationTarget,
    attribution_sums,
    normalized,
    segment_texts,
)
from handlers.explainers.targets.base import as_integer
from handlers.runtime.jobs import Job
from handlers.tasks.base import Label
from handlers.tasks.sentence_similarity import Task


class Side(Attributions):
    """The attributions of one sentence, and whether their sum is right within 5%."""

    converged: bool


class SentenceTarget(Label):
    """A sentence of the request, by its number; its score is the similarity."""

    index: int


class SimilarityExplanation(Segments):
    """Which words of two sentences, `texts`, drive their similarity.

    Words of both are in one list, and `sequence_ids` has 0 for the source and 1 for the other.
    """

    texts: list[str]
    importances: list[float]
    delta: float
    source: Side
    sentence: Side
    prediction: SentenceTarget
    target: SentenceTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the similarity of the source and one sentence, from both sides."""

    results = SimilarityExplanation
    example_target = 0

    def select(self, job: Job) -> list[AttributionTarget]:
        number = self._number(job)
        score = self.task.similarities(job.outputs)[number]
        vectors = self.task.vectors(job.outputs)
        sides = (0, number + 1)
        return [
            self._side(job, place, Comparison(vectors[other], **self._options), score)
            for place, other in (sides, sides[::-1])
        ]

    def to_response(
        self, job: Job, selected: Sequence[AttributionTarget], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        source, sentence = attributions
        number, scores = self._number(job), self.task.similarities(job.outputs)
        words = [segment_texts(each) for each in _numbered(selected)]
        return {
            **{name: [*words[0][name], *words[1][name]] for name in words[0]},
            "texts": [str(job.query.texts[place].text) for place in (0, number + 1)],
            "importances": [*normalized(source), *normalized(sentence)],
            "delta": max(source.delta, sentence.delta, key=abs),
            "source": attribution_sums(source),
            "sentence": attribution_sums(sentence),
            "converged": source.converged and sentence.converged,
            "prediction": _named(job, int(np.argmax(scores)), scores),
            "target": _named(job, number, scores),
        }

    @property
    def _options(self) -> dict[str, Any]:
        modules = self.task.modules
        return {"similarity": self.task.similarity, "normalizes": modules.normalizes}

    def _side(
        self, job: Job, place: int, comparison: Comparison, score: float
    ) -> AttributionTarget:
        row, text = job.rows[place], str(job.query.texts[place].text)
        segments = segment_tokens(row, [text], job.settings.granularity)
        return AttributionTarget(row, segments, OUTPUT, (), score, comparison)

    def _number(self, job: Job) -> int:
        target = job.settings.target
        if target is None:
            return int(np.argmax(self.task.similarities(job.outputs)))
        return as_integer(target, "target", len(job.outputs) - 1)


def _numbered(selected: Sequence[AttributionTarget]) -> list[AttributionTarget]:
    """Return the targets with the number of their side in their segments."""
    return [
        replace(
            each,
            segments=[
                segment if segment.special else replace(segment, sequence=side)
                for segment in each.segments
            ],
        )
        for side, each in enumerate(selected)
    ]


def _named(job: Job, number: int, scores: Sequence[float]) -> SentenceTarget:
    text = str(job.query.texts[number + 1].text)
    return {"label": text, "score": scores[number], "index": number}
