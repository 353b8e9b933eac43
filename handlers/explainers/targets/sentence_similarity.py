"""Which words of two sentences drive their similarity.

`target` is the number of a sentence, by default of the most similar one. Each side is
explained with the vector of the other as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...checkpoints.sentence_transformers import OUTPUT
from ...tasks.base import Label
from ...tasks.sentence_similarity import Task
from ...types.request import RequestState
from ..base import Attribution, AttributionTarget, Comparison
from ..bases.text import (
    Segments,
    Sums,
    TextExplanationTarget,
    attribution_sums,
    normalized,
    segment_texts,
)
from .base import as_integer


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
    source: Sums
    sentence: Sums
    prediction: SentenceTarget
    target: SentenceTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the similarity of the source and one sentence, from both sides."""

    results = SimilarityExplanation
    example_target = 0

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [str(state.input.texts[number].text)]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        number = self._number(state)
        score = self.task.similarities(state.outputs)[number]
        vectors = self.task.vectors(state.outputs)
        sides = (0, number + 1)
        return [
            self._side(state, place, Comparison(vectors[other], **self._options), score)
            for place, other in (sides, sides[::-1])
        ]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[AttributionTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        source, sentence = attributions
        number, scores = self._number(state), self.task.similarities(state.outputs)
        words = [segment_texts(each) for each in _numbered(selected)]
        return {
            **{name: [*words[0][name], *words[1][name]] for name in words[0]},
            "texts": [str(state.input.texts[place].text) for place in (0, number + 1)],
            "importances": [*normalized(source), *normalized(sentence)],
            "delta": max(source.delta, sentence.delta, key=abs),
            "source": attribution_sums(source),
            "sentence": attribution_sums(sentence),
            "converged": source.converged and sentence.converged,
            "prediction": _named(state, int(np.argmax(scores)), scores),
            "target": _named(state, number, scores),
        }

    @property
    def _options(self) -> dict[str, Any]:
        modules = self.task.modules
        return {"similarity": self.task.similarity, "normalizes": modules.normalizes}

    def _side(
        self, state: RequestState, place: int, comparison: Comparison, score: float
    ) -> AttributionTarget:
        segments = self.segments(state, place)
        return AttributionTarget(state.rows[place], segments, OUTPUT, (), score, comparison)

    def _number(self, state: RequestState) -> int:
        target = state.settings.target
        if target is None:
            return int(np.argmax(self.task.similarities(state.outputs)))
        return as_integer(target, "target", len(state.outputs) - 1)


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


def _named(state: RequestState, number: int, scores: Sequence[float]) -> SentenceTarget:
    text = str(state.input.texts[number + 1].text)
    return {"label": text, "score": scores[number], "index": number}
