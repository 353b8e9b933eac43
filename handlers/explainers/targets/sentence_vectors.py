"""Which words of sentences drive their similarity, by the vectors of the sentences.

`target` is the text that an embedding is compared with; by default the length of the vector itself
is explained. Of a similarity it is the number of a sentence, by default of the most similar one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...batching.tokenization import Window
from ...checkpoints.sentence_transformers import OUTPUT
from ...errors import BadRequest
from ...tasks import sentence_embedding, sentence_similarity
from ...tasks.base import Label
from ...tasks.sentence_embedding import EmbeddingInput
from ...types.parameters import TextExplanationParameters
from ...types.request import Request, RequestState
from ..base import Attribution, AttributionTarget, Comparison, unit_vector
from ..bases.text import (
    Explanation,
    Segments,
    Sums,
    TextExplanationTarget,
    attribution_sums,
    normalized,
    segment_texts,
)
from .base import as_integer

Vector = npt.NDArray[np.float32]


class SimilarityExplanation(Explanation):
    """Why two texts are similar; `label` of the target is the other text, `score` the cosine.

    Without another text, `score` is the length of the text's vector.
    """

    prediction: Label
    target: Label


class EmbeddingTarget(TextExplanationTarget[sentence_embedding.Task]):
    """Explains the cosine of a text's vector and another one, or else the vector's length."""

    results = SimilarityExplanation
    example_target = "The actors were brilliant."

    def parse(self, request: Request, settings: TextExplanationParameters) -> EmbeddingInput:
        item = self.task.parse(request)
        if item.starts:
            raise BadRequest("Chunks are not explained; send a text.")
        if settings.target is None:
            return item
        other = self.task.read_text(settings.target, "target", item.parameters)
        return replace(item, other=other)

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [str(state.input.text.text)]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        row, size = state.rows[0], state.input.parameters.dimensions
        if not isinstance(row, Window):
            raise BadRequest("Token ids are not explained; send a text.")
        vector, *others = (
            self.task.vector(each, normalize=False, dimensions=size) for each in state.outputs
        )
        comparison, score = compared(vector, *others)
        return [AttributionTarget(row, self.segments(state), OUTPUT, (), score, comparison)]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        score = selected.score
        other = state.input.other or state.input.text
        return {
            "prediction": {"label": "similarity", "score": score},
            "target": {"label": str(other.text), "score": score},
        }


class SentenceTarget(Label):
    """A sentence of the request, by its number; its score is the similarity."""

    index: int


class SentencesExplanation(Segments):
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


class SimilarityTarget(TextExplanationTarget[sentence_similarity.Task]):
    """Explains the similarity of the source and one sentence, from both sides.

    Each side is explained with the vector of the other as it is.
    """

    results = SentencesExplanation
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


def compared(vector: Vector, other: Vector | None = None) -> tuple[Comparison, float]:
    """Return what explains the cosine of two vectors, or the length of one, and its value."""
    if other is not None:
        return Comparison(torch.from_numpy(other)), cosine(vector, other)
    # The cosine of a vector with itself is at its maximum, where its gradient is zero.
    return Comparison(torch.from_numpy(unit_vector(vector)), "dot"), float(np.linalg.norm(vector))


def cosine(first: Vector, second: Vector) -> float:
    """Return the cosine of two vectors."""
    lengths = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(np.dot(first, second)) / max(lengths, 1e-12)


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
