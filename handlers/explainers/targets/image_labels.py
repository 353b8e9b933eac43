"""Explanations of a label of an image: which parts of the image drive it.

`target` is a label or its number: a class of the model, one of its answers to a question, or one of
the labels of the request. By default it is the predicted one, for segments the class of most pixels
or the segment with the highest score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...batching.padding import Batch
from ...batching.rows import Outputs
from ...model import Model
from ...process.deadline import Deadline
from ...tasks import (
    image_classification,
    image_segmentation,
    visual_question_answering,
    zero_shot_image_classification,
)
from ...tasks.bases.labels import softmax
from ...types.request import RequestState
from ..base import Forward
from ..bases.image import ExplainedImageModel, ImageLabelExplanationTarget, ImageTarget
from .base import candidate_number

# The share of each pixel in the mean of a class's logits, an input of the explained model.
WEIGHTS = "pixel_weights"
MEANS = "mean_logits"


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
        score = float(state.outputs[0]["logits"][number])
        return ImageTarget(state.rows[0], self.patches(state), logits, (column,), score)

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        return replace(
            super().explained(model, deadline),
            collate=self.task.collate,
            shared_inputs=self.task.text_inputs,
        )


class SegmentTarget(ImageLabelExplanationTarget[image_segmentation.Task]):
    """Explains the logits of a class, over its pixels or of its best segment.

    A model that classifies pixels is explained by the mean of a class's logits over the pixels that
    it gives this class, as Seg-Grad-CAM does (https://arxiv.org/abs/2002.11434). One that finds
    segments, such as Mask2Former, is explained by the logit of the best segment of the class.

    The score of a class is its share of the pixels, or the score of its best segment.
    """

    def labels(self, state: RequestState) -> Sequence[str]:
        return self.task.labels

    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        outputs = state.outputs[0]
        if not _has_pixel_logits(outputs):
            scores: npt.NDArray[Any] = _class_scores(outputs).max(axis=0)
            return scores
        logits = outputs["logits"]
        pixels = logits.argmax(axis=0).ravel()
        return np.bincount(pixels, minlength=len(logits)) / pixels.size

    def logit(self, state: RequestState, number: int) -> ImageTarget:
        outputs = state.outputs[0]
        if _has_pixel_logits(outputs):
            return self._mean_logit(state, number)
        segment = int(_class_scores(outputs)[:, number].argmax())
        return self.target_at(state, _segment_logits(outputs), (segment, number))

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        explained = super().explained(model, deadline)
        return replace(explained, forward=partial(_with_means, explained.forward))

    def _mean_logit(self, state: RequestState, number: int) -> ImageTarget:
        """Return the mean of a class's logits over its pixels, or over all if it has none."""
        logits = state.outputs[0]["logits"]
        weights = (logits.argmax(axis=0) == number).astype(np.float32)
        if not weights.any():
            weights += 1
        weights /= weights.sum()
        row = state.rows[0]
        weighted = replace(row, features={**row.features, WEIGHTS: weights})
        score = float((logits[number] * weights).sum())
        return ImageTarget(weighted, self.patches(state), MEANS, (number,), score)


def _with_means(forward: Forward, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Run a batch; adds the mean logits of each row's pixels. Shape: (rows, classes)."""
    inputs = dict(batch)
    weights = inputs.pop(WEIGHTS, None)
    outputs = forward(inputs)
    if weights is None:
        return outputs
    logits = outputs["logits"].float()
    means = (logits * weights.to(logits.device)[:, None]).sum(dim=(2, 3))
    return {**outputs, MEANS: means}


def _has_pixel_logits(outputs: Outputs) -> bool:
    return "logits" in outputs and outputs["logits"].ndim == 3


def _segment_logits(outputs: Outputs) -> str:
    """Return the name of the logits of segments. Shape: (segments, classes + 1)."""
    return "class_queries_logits" if "class_queries_logits" in outputs else "logits"


def _class_scores(outputs: Outputs) -> npt.NDArray[Any]:
    """Return the probability of each class for each segment; the last, no object, is left out."""
    return softmax(outputs[_segment_logits(outputs)])[:, :-1]
