"""An image to the objects in it, each with a label, a score and a box.

{"inputs": "<base64>"} ->
    [{"score": 0.98, "label": "cat", "box": {"xmin": 12, "ymin": 52, "xmax": 314, "ymax": 470}}, …]

The body may also be the bytes of the image file. Boxes are in pixels of the image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from typing_extensions import TypedDict

from handlers.batching.rows import Outputs
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.schemas.parameters import Parameters
from handlers.schemas.pipeline_names import ANY, PipelineNames
from handlers.tasks._image import (
    SAMPLE_INPUTS,
    ImageQuery,
    ImageRow,
    ImageTask,
    as_batch,
    require_post_processing,
)


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
    outputs = ("logits", "pred_boxes")
    numbers = ("pred_boxes",)
    exports = True
    parameters = ObjectDetectionParameters
    inputs = str
    results = list[DetectedObject]
    sample: ClassVar[Mapping[str, Any]] = SAMPLE_INPUTS

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.labels = checkpoint.labels
        self._find_objects = require_post_processing(
            self.image_processor, "post_process_object_detection"
        )

    def decode(
        self, query: ImageQuery, rows: Sequence[ImageRow], outputs: Sequence[Outputs]
    ) -> Any:
        found = self._find_objects(
            as_batch(outputs[0]),
            query.parameters.threshold,
            torch.tensor([[rows[0].height, rows[0].width]]),
        )[0]
        columns = (found[name].tolist() for name in ("scores", "labels", "boxes"))
        return [
            {"score": score, "label": self.labels[label], "box": _box(corners)}
            for score, label, corners in zip(*columns, strict=True)
        ]


def _box(corners: Sequence[float]) -> dict[str, int]:
    names = ("xmin", "ymin", "xmax", "ymax")
    return {name: int(value) for name, value in zip(names, corners, strict=True)}
