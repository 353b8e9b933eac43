"""Explanations of a segment of an image: which parts of the image give it its label.

`target` is a label or a class number; by default the class of most pixels, or the segment with the
highest score. A model that classifies pixels is explained by the mean of a class's logits over the
pixels that it gives this class, as Seg-Grad-CAM does (https://arxiv.org/abs/2002.11434). One that
finds segments, such as Mask2Former, is explained by the logit of the best segment of the class.
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
from ...tasks.bases.labels import softmax
from ...tasks.image_segmentation import Task
from ...types.request import RequestState
from ..base import Forward
from ..bases.image import ExplainedImageModel, ImageLabelExplanationTarget, ImageTarget

# The share of each pixel in the mean of a class's logits, an input of the explained model.
WEIGHTS = "pixel_weights"
MEANS = "mean_logits"


class ExplanationTarget(ImageLabelExplanationTarget[Task]):
    """Explains the logits of a class, over its pixels or of its best segment.

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
