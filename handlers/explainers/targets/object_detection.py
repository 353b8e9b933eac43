"""Explanations of an object in an image: which parts of the image give it its label.

`target` is the number of an object in the answer to a prediction with the same parameters, or a
label for the best object of that label; by default the object with the highest score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...config.messages import quote
from ...errors import BadRequest
from ...tasks.object_detection import DetectedObject, Detection, Task
from ...types.request import RequestState
from ..bases.image import ImageExplanation, ImageExplanationTarget, ImageTarget, image_view
from ..page import View
from .base import as_integer


class ObjectTarget(DetectedObject):
    """The object that is explained; `index` are its query and its class in the model."""

    index: tuple[int, int]


class ObjectExplanation(ImageExplanation):
    """Why an object got its label; the prediction is the object with the highest score."""

    prediction: DetectedObject
    target: ObjectTarget


class ExplanationTarget(ImageExplanationTarget[Task]):
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
