"""Explanations of a label that the request names: which parts of the image fit its description.

`target` is a label, or its number in the request; by default the label with the highest score. Its
logit is explained, the scaled similarity of the image and the description.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from ...model import Model
from ...process.deadline import Deadline
from ...tasks.zero_shot_image_classification import LOGITS, Task
from ...types.request import RequestState
from ..bases.image import (
    ExplainedImageModel,
    ImageLabelExplanationTarget,
    ImageTarget,
)
from .base import candidate_number


class ExplanationTarget(ImageLabelExplanationTarget[Task]):
    """Explains the logit of one label."""

    def labels(self, state: RequestState) -> Sequence[str]:
        labels: Sequence[str] = state.input.labels
        return labels

    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        return self.task.scores(state.outputs[0])

    def number_of(self, state: RequestState, target: Any) -> int:
        return candidate_number(target, self.labels(state))

    def logit(self, state: RequestState, number: int) -> ImageTarget:
        # Labels that are equal for the tokenizer have one description in the batch.
        texts = state.rows[0].texts
        column = list(dict.fromkeys(texts)).index(texts[number])
        score = float(state.outputs[0]["logits"][number])
        return ImageTarget(state.rows[0], self.patches(state), LOGITS, (column,), score)

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        return replace(
            super().explained(model, deadline),
            collate=self.task.collate,
            shared_inputs=self.task.text_inputs,
        )
