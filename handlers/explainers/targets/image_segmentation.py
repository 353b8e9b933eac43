"""Explanations of a segment of an image: which parts of the image give it its label.

`target` is a label or a class number; by default the class of most pixels, or the segment with the
highest score. A model that classifies pixels is explained by the mean of a class's logits over the
pixels that it gives this class, as Seg-Grad-CAM does (https://arxiv.org/abs/2002.11434). One that
finds segments, such as Mask2Former, is explained by the logit of the best segment of the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import TypedDict

from handlers.batching.padding import Batch
from handlers.explainers._patches import ExplainedImageModel, ImageTarget
from handlers.explainers.base import Forward
from handlers.explainers.targets._image import ImageExplanation, ImageExplanationTarget
from handlers.runtime.deadline import Deadline
from handlers.runtime.jobs import Job
from handlers.runtime.model import Model
from handlers.tasks._activations import softmax
from handlers.tasks.image_segmentation import Task

# The share of each pixel in the mean of a class's logits, an input of the explained model.
WEIGHTS = "pixel_weights"
MEANS = "mean_logits"


class SegmentLabel(TypedDict):
    """A class, and its score: that of its best segment, or its share of the pixels."""

    label: str
    score: float


class SegmentTarget(SegmentLabel):
    """The class that is explained; `index` is its number."""

    index: int


class SegmentExplanation(ImageExplanation):
    """Why a segment got its label."""

    prediction: SegmentLabel
    target: SegmentTarget


class ExplanationTarget(ImageExplanationTarget[Task]):
    """Explains the logits of a class, over its pixels or of its best segment."""

    results = SegmentExplanation
    example_target = 0

    def choose(self, job: Job) -> ImageTarget:
        number, outputs = self._number(job), job.outputs[0]
        if _has_pixel_logits(outputs):
            return self._pixels_of(job, number)
        name = _segment_logits(outputs)
        query = int(_class_scores(outputs[name])[:, number].argmax())
        return self.target_at(job, name, (query, number))

    def describe(self, job: Job, selected: ImageTarget) -> dict[str, Any]:
        scores, number = _scores(job.outputs[0]), self._number(job)
        best = int(scores.argmax())
        return {
            "prediction": self._named(best, scores),
            "target": {**self._named(number, scores), "index": number},
        }

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        explained = super().explained(model, deadline)
        return replace(explained, forward=partial(_with_means, explained.forward))

    def _pixels_of(self, job: Job, number: int) -> ImageTarget:
        """Return the mean of a class's logits over its pixels, or over all if it has none."""
        logits = job.outputs[0]["logits"]
        weights = (logits.argmax(axis=0) == number).astype(np.float32)
        if not weights.any():
            weights += 1
        weights /= weights.sum()
        row = job.rows[0]
        row = replace(row, features={**row.features, WEIGHTS: weights})
        score = float((logits[number] * weights).sum())
        return ImageTarget(row, self.patches(job), MEANS, (number,), score)

    def _number(self, job: Job) -> int:
        wanted = job.settings.target
        return (
            int(_scores(job.outputs[0]).argmax()) if wanted is None else self.label_number(wanted)
        )

    def _named(self, number: int, scores: npt.NDArray[Any]) -> SegmentLabel:
        return {"label": self.task.labels[number], "score": float(scores[number])}


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


def _has_pixel_logits(outputs: Mapping[str, npt.NDArray[Any]]) -> bool:
    return "logits" in outputs and outputs["logits"].ndim == 3


def _segment_logits(outputs: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the name of the logits of segments. Shape: (segments, classes + 1)."""
    return "class_queries_logits" if "class_queries_logits" in outputs else "logits"


def _scores(outputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the score of each class: of its best segment, or its share of the pixels."""
    if not _has_pixel_logits(outputs):
        scores: npt.NDArray[Any] = _class_scores(outputs[_segment_logits(outputs)]).max(axis=0)
        return scores
    logits = outputs["logits"]
    pixels = logits.argmax(axis=0).ravel()
    return np.bincount(pixels, minlength=len(logits)) / pixels.size


def _class_scores(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the probability of each class for each segment; the last, no object, is left out."""
    return softmax(logits)[:, :-1]
