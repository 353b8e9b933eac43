"""Explanations of the similarity of a text to another one.

`target` is the other text; by default the length of the text's own vector is explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from handlers.batching.rows import Row
from handlers.batching.tokenization import Window
from handlers.checkpoints.sentence_transformers import OUTPUT
from handlers.errors import BadRequest
from handlers.explainers.base import Attribution, AttributionTarget, Comparison, unit_vector
from handlers.explainers.bases.text import (
    Explanation,
    TextExplanationTarget,
    explanation_fields,
    segment_tokens,
)
from handlers.tasks.base import Label
from handlers.tasks.sentence_embedding import EmbeddingInput, Task
from handlers.types.parameters import Granularity, TextExplanationParameters
from handlers.types.request import Request, RequestState

Vector = npt.NDArray[np.float32]


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

    def parse(self, request: Request, settings: TextExplanationParameters) -> EmbeddingInput:
        item = self.task.parse(request)
        if settings.target is None:
            return item
        other = self.task.read_text(settings.target, "target", item.parameters)
        return replace(item, other=other)

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


def similarity_target(
    row: Row,
    text: str,
    output: str,
    vector: Vector,
    other: Vector | None,
    granularity: Granularity,
) -> AttributionTarget:
    """Return the cosine of the vectors of two texts as a target of attribution to the first.

    Without another text it is the length of the vector in its own direction: the cosine of a vector
    with itself is at its maximum, where its gradient is zero.

    Args:
        output: the name of the output with its vector.
        vector: its vector, of the dimensions that are compared.
        other: the vector of the other text.

    Raises:
        BadRequest: the row is of token ids, which have no text.
    """
    if not isinstance(row, Window):
        raise BadRequest("Token ids are not explained; send a text.")
    segments = segment_tokens(row, [text], granularity)
    if other is not None:
        comparison, score = Comparison(torch.from_numpy(other)), cosine(vector, other)
    else:
        score = float(np.linalg.norm(vector))
        comparison = Comparison(torch.from_numpy(unit_vector(vector)), "dot")
    return AttributionTarget(row, segments, output, (), score, comparison)


def cosine(first: Vector, second: Vector) -> float:
    """Return the cosine of two vectors."""
    lengths = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(np.dot(first, second)) / max(lengths, 1e-12)
