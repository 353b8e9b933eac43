"""An image to the objects in it, each with a label, a score and a box.

{"inputs": "<base64>"} ->
    [{"score": 0.98, "label": "cat", "box": {"xmin": 12, "ymin": 52, "xmax": 314, "ymax": 470}}, …]

The body may also be the bytes of the image file. Boxes are in pixels of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..types.model_info import ModelOutputs, TaskDescription
from ..types.parameters import ANY, Parameters, PipelineNames
from .bases.image import (
    IMAGE_ROWS,
    ImageRow,
    ImageTask,
    as_batch,
    image_wire,
    require_post_processing,
)
from .bases.media import MediaInput


class Box(TypedDict):
    """The corners of a rectangle, in pixels from the left and from the top of the image."""

    xmin: int
    ymin: int
    xmax: int
    ymax: int


class DetectedObject(TypedDict):
    """One object in an image."""

    score: float
    label: str
    box: Box


@dataclass(frozen=True)
class Detection:
    """An object that a model has found.

    Attributes:
        label: the number of its class.
        box: its left, top, right and lower edge, in pixels of the image.
        query: the number of the model's query that found it.
    """

    score: float
    label: int
    box: Sequence[float]
    query: int


class ObjectDetectionParameters(Parameters):
    """Parameters of the object-detection pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "timeout": ANY}
    )

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The lowest score of an object."""


class Task(ImageTask):
    """Object detection; answers as the object-detection pipeline does."""

    auto_class = "AutoModelForObjectDetection"
    description = TaskDescription(
        image_wire(results=list[DetectedObject]),
        outputs=ModelOutputs(("logits", "pred_boxes"), numbers=("pred_boxes",)),
        rows=IMAGE_ROWS,
        has_labels=True,
    )
    parameters = ObjectDetectionParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._find_objects = require_post_processing(
            self.image_processor, "post_process_object_detection"
        )

    def decode(self, item: MediaInput, rows: Sequence[ImageRow], outputs: Sequence[Outputs]) -> Any:
        found = self.detections(rows[0], outputs[0], item.parameters.threshold)
        return [self.describe(each) for each in found]

    def detections(self, row: ImageRow, outputs: Outputs, threshold: float) -> list[Detection]:
        """Return the objects in an image whose score is above a threshold."""
        found = self._find(outputs, threshold, row.height, row.width)
        # The processor keeps no queries, so it is given boxes that are their numbers.
        numbers = np.zeros_like(outputs["pred_boxes"])
        numbers[:, 0] = np.arange(len(numbers))
        queries = self._find({**outputs, "pred_boxes": numbers}, threshold, 1, 1)["boxes"][:, 0]
        columns = (found[name].tolist() for name in ("scores", "labels", "boxes"))
        return [
            Detection(score, label, box, round(query))
            for score, label, box, query in zip(*columns, queries.tolist(), strict=True)
        ]

    def describe(self, detection: Detection) -> DetectedObject:
        """Return an object, ready for JSON."""
        label = self.labels[detection.label]
        return {"score": detection.score, "label": label, "box": box_of(detection.box)}

    def _find(self, outputs: Outputs, threshold: float, height: int, width: int) -> dict[str, Any]:
        size = torch.tensor([[height, width]])
        found: dict[str, Any] = self._find_objects(as_batch(outputs), threshold, size)[0]
        return found


def box_of(corners: Sequence[float]) -> Box:
    """Return the corners of a rectangle in whole pixels."""
    left, top, right, bottom = map(int, corners)
    return {"xmin": left, "ymin": top, "xmax": right, "ymax": bottom}
