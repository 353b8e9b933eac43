"""Which parts of an image drive a label, an object or its vector.

`target` is, for

- a label: the label or its number, of a class of the model, one of its answers to a question, or
  one of the labels of the request. By default it is the predicted one, for segments the class of
  most pixels or the segment with the highest score.
- an object: its number in the answer to a prediction with the same parameters, or a label for the
  best object of that label; by default the object with the highest score.
- a vector: the number of a dimension of the pooled vector; by default the length of the vector is
  explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...batching.padding import Tensors
from ...batching.rows import Outputs
from ...config.messages import quote
from ...errors import BadRequest, Unprocessable
from ...model import Model
from ...process.deadline import Deadline
from ...tasks import (
    image_classification,
    image_feature_extraction,
    image_segmentation,
    object_detection,
    visual_question_answering,
    zero_shot_image_classification,
)
from ...tasks.base import Label
from ...tasks.bases.labels import softmax
from ...tasks.object_detection import DetectedObject, Detection
from ...types.request import RequestState
from ..base import Comparison, Forward, unit_vector
from ..bases.image import (
    ExplainedImageModel,
    ImageExplanation,
    ImageExplanationTarget,
    ImageLabelExplanationTarget,
    ImageTarget,
    image_view,
)
from ..page import View
from .base import as_integer, candidate_number

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

        def forward(batch: Tensors) -> Mapping[str, torch.Tensor]:
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


def _with_means(forward: Forward, batch: Tensors) -> Mapping[str, torch.Tensor]:
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


class ObjectTarget(DetectedObject):
    """The object that is explained; `index` are its query and its class in the model."""

    index: tuple[int, int]


class ObjectExplanation(ImageExplanation):
    """Why an object got its label; the prediction is the object with the highest score."""

    prediction: DetectedObject
    target: ObjectTarget


class DetectionTarget(ImageExplanationTarget[object_detection.Task]):
    """Explains the logit of an object's label, for the query of the model that found it."""

    results = ObjectExplanation
    # The sample may have no object above the threshold, and labels depend on the checkpoint.
    example_target = None

    def choose(self, state: RequestState) -> ImageTarget:
        found = self._chosen(state)
        return self.target_at(state, "logits", (found.query, found.label))

    def describe(self, state: RequestState, selected: ImageTarget) -> dict[str, Any]:
        found = self._chosen(state)
        return {
            "prediction": self.task.describe(self._best(state)),
            "target": {**self.task.describe(found), "index": [found.query, found.label]},
        }

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        height, width = explanation["image_size"]
        box = explanation["target"]["box"]
        shares = (
            box["xmin"] / width,
            box["ymin"] / height,
            box["xmax"] / width,
            box["ymax"] / height,
        )
        yield image_view(explanation, shares)

    def _chosen(self, state: RequestState) -> Detection:
        target = state.settings.target
        if target is None:
            return self._best(state)
        if isinstance(target, str):
            return self._best(state, self.label_number(state, target))
        threshold = state.input.parameters.threshold
        found = self._detections(state, threshold)
        if not found:
            raise BadRequest(
                f"target is {quote(target)}, and no object has a score above the threshold of"
                f" {threshold:g}; lower threshold, or leave target out for the best object."
            )
        return found[as_integer(target, "target", len(found))]

    def _best(self, state: RequestState, label: int | None = None) -> Detection:
        """Return the object with the highest score, whatever the threshold is."""
        found = [
            each for each in self._detections(state, -1.0) if label is None or each.label == label
        ]
        if not found:
            raise BadRequest(
                f"target is the label {quote(state.settings.target)}, and no object has it; send"
                " another label, or leave target out for the best object."
            )
        return max(found, key=lambda each: each.score)

    def _detections(self, state: RequestState, threshold: float) -> list[Detection]:
        return self.task.detections(state.rows[0], state.outputs[0], threshold)


OUTPUT = "pooler_output"


class VectorTarget(Label):
    """What is explained: the length of the vector, or the value of a dimension."""

    index: int | None


class VectorExplanation(ImageExplanation):
    """Why the pooled vector of an image is long, or why one of its numbers is large."""

    prediction: Label
    target: VectorTarget


class ImageVectorTarget(ImageExplanationTarget[image_feature_extraction.Task]):
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
