"""Explanations of the vector of an image: which parts of the image make it long.

`target` is the number of a dimension of the pooled vector; by default the length of the vector is
explained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...errors import Unprocessable
from ...tasks.base import Label
from ...tasks.image_feature_extraction import Task
from ...types.request import RequestState
from ..base import Comparison, unit_vector
from ..bases.image import ImageExplanation, ImageExplanationTarget, ImageTarget
from .base import as_integer

OUTPUT = "pooler_output"


class VectorTarget(Label):
    """What is explained: the length of the vector, or the value of a dimension."""

    index: int | None


class VectorExplanation(ImageExplanation):
    """Why the pooled vector of an image is long, or why one of its numbers is large."""

    prediction: Label
    target: VectorTarget


class ExplanationTarget(ImageExplanationTarget[Task]):
    """Explains the length of the pooled vector, in its own direction, or one of its numbers."""

    results = VectorExplanation
    example_target = 0

    def choose(self, state: RequestState) -> ImageTarget:
        if OUTPUT not in state.outputs[0]:
            raise Unprocessable(
                "This model has no pooler, so its images have no single vector to explain; serve a"
                " checkpoint with the weights of its pooler."
            )
        vector, target = state.outputs[0][OUTPUT], state.settings.target
        if target is not None:
            return self.target_at(state, OUTPUT, (as_integer(target, "target", len(vector)),))
        length = float(np.linalg.norm(vector))
        direction = torch.from_numpy(unit_vector(vector))
        return self.similarity_target(state, OUTPUT, Comparison(direction, "dot"), length)

    def describe(self, state: RequestState, selected: ImageTarget) -> dict[str, Any]:
        length = float(np.linalg.norm(state.outputs[0][OUTPUT]))
        index = selected.index[0] if selected.index else None
        label = "length" if index is None else f"dimension {index}"
        return {
            "prediction": {"label": "length", "score": length},
            "target": {"label": label, "score": selected.score, "index": index},
        }
