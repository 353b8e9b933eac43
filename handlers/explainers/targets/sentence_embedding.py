"""Explanations of the similarity of a text to another one.

`target` is the other text; by default the length of the text's own vector is explained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...batching.tokenization import Window
from ...checkpoints.sentence_transformers import OUTPUT
from ...errors import BadRequest
from ...tasks.base import Label
from ...tasks.sentence_embedding import EmbeddingInput, Task
from ...types.parameters import TextExplanationParameters
from ...types.request import Request, RequestState
from ..base import AttributionTarget, Comparison, unit_vector
from ..bases.text import Explanation, TextExplanationTarget

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

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [str(state.input.text.text)]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        row, size = state.rows[0], state.input.parameters.dimensions
        if not isinstance(row, Window):
            raise BadRequest("Token ids are not explained; send a text.")
        vector, *others = (
            self.task.vector(each, normalize=False, dimensions=size) for each in state.outputs
        )
        if others:
            comparison, score = Comparison(torch.from_numpy(others[0])), cosine(vector, others[0])
        else:
            # The cosine of a vector with itself is at its maximum, where its gradient is zero.
            comparison = Comparison(torch.from_numpy(unit_vector(vector)), "dot")
            score = float(np.linalg.norm(vector))
        return [AttributionTarget(row, self.segments(state), OUTPUT, (), score, comparison)]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        score = selected.score
        other = state.input.other or state.input.text
        return {
            "prediction": {"label": "similarity", "score": score},
            "target": {"label": str(other.text), "score": score},
        }


def cosine(first: Vector, second: Vector) -> float:
    """Return the cosine of two vectors."""
    lengths = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(np.dot(first, second)) / max(lengths, 1e-12)
