"""Explanations of the similarity of a text to another one.

`target` is the other text; by default the length of the text's own vector is explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from handlers.checkpoints.sentence_transformers import OUTPUT
from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers._similarity import similarity_target
from handlers.explainers.targets._text import (
    Explanation,
    TextExplanationTarget,
    explanation_fields,
)
from handlers.tasks.base import Label
from handlers.tasks.sentence_embedding import EmbeddingQuery, Task
from handlers.types.parameters import TextExplanationParameters
from handlers.types.request import Request, RequestState


class SimilarityExplanation(Explanation):
    """Why two texts are similar; `label` of the target is the other text, `score` the cosine.

    Without another text, `score` is the length of the text's vector.
    """

    prediction: Label
    target: Label


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the cosine of a text's vector and another one, or else the vector's length."""

    results = SimilarityExplanation
    example_target = "The actors were brilliant."

    def parse(self, request: Request, settings: TextExplanationParameters) -> EmbeddingQuery:
        query = self.task.parse(request)
        if settings.target is None:
            return query
        other = self.task.read_text(settings.target, "target", query.parameters)
        return replace(query, other=other)

    def select(self, state: RequestState) -> list[AttributionTarget]:
        size = state.input.parameters.dimensions
        vectors = [
            self.task.vector(each, normalize=False, dimensions=size) for each in state.outputs
        ]
        own, other = vectors[0], vectors[1] if state.input.other else None
        text, granularity = str(state.input.text.text), state.settings.granularity
        return [similarity_target(state.rows[0], text, OUTPUT, own, other, granularity)]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[AttributionTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        score = selected[0].score
        other = state.input.other or state.input.text
        return {
            **explanation_fields(selected[0], attributions[0]),
            "prediction": {"label": "similarity", "score": score},
            "target": {"label": str(other.text), "score": score},
        }
