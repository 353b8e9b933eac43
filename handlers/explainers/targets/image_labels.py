"""Explanations of a label of an image: which parts of the image drive it.

`target` is a label or its number: a class of the model, one of its answers to a question, or one of
the labels of the request. By default it is the predicted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt
import torch

from ...batching.padding import Batch
from ...model import Model
from ...process.deadline import Deadline
from ...tasks import image_classification, visual_question_answering, zero_shot_image_classification
from ...types.request import RequestState
from ..bases.image import ExplainedImageModel, ImageLabelExplanationTarget, ImageTarget
from .base import candidate_number


class ClassTarget(ImageLabelExplanationTarget[image_classification.Task]):
    """Explains the logit of one class."""

    def labels(self, state: RequestState) -> Sequence[str]:
        return self.task.labels

    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        return self.task.scores(state.input, state.outputs[0])


class AnswerTarget(ImageLabelExplanationTarget[visual_question_answering.Task]):
    """Explains the logit of one answer, for a model that chooses it among its answers."""

    def labels(self, state: RequestState) -> Sequence[str]:
        return self.task.labels

    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        return self.task.scores(state.outputs[0])

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        explained = super().explained(model, deadline)

        def forward(batch: Batch) -> Mapping[str, torch.Tensor]:
            with visual_question_answering.fixed_patch_order():
                return explained.forward(batch)

        return replace(explained, forward=forward)


class CandidateTarget(ImageLabelExplanationTarget[zero_shot_image_classification.Task]):
    """Explains the logit of one label: the scaled similarity of the image and its description."""

    def labels(self, state: RequestState) -> Sequence[str]:
        labels: Sequence[str] = state.input.labels
        return labels

    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        return self.task.scores(state.outputs[0])

    def number_of(self, state: RequestState, target: Any) -> int:
        return candidate_number(target, self.labels(state))

    def logit(self, state: RequestState, number: int) -> ImageTarget:
        # Labels that are equal for the tokenizer have one description in the batch.
        texts, logits = state.rows[0].texts, zero_shot_image_classification.LOGITS
        column = list(dict.fromkeys(texts)).index(texts[number])
        score = float(state.outputs[0][logits][number])
        return ImageTarget(state.rows[0], self.patches(state), logits, (column,), score)

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        return replace(
            super().explained(model, deadline),
            collate=self.task.collate,
            shared_inputs=self.task.text_inputs,
        )
