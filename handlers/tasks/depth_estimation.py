"""An image to the depth of each of its pixels.

{"inputs": "<base64>"} -> {"depth": "<PNG in base64>", "predicted_depth": [[2.31, 2.35, …], …]}

The body may also be the bytes of the image file. Both have the size of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
from PIL import Image
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..media.images import png_in_base64
from ..types.embeddings import as_list
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


class Depth(TypedDict):
    """The depth of an image, as a grey picture and as numbers."""

    depth: str
    predicted_depth: NotRequired[list[list[float]]]


class DepthEstimationParameters(Parameters):
    """Parameters of the depth-estimation pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "timeout": ANY}
    )

    return_predicted_depth: bool = True
    """Returns the numbers of the model beside the picture, one for each pixel."""


class Task(ImageTask):
    """Depth estimation; answers as the depth-estimation pipeline does."""

    auto_class = "AutoModelForDepthEstimation"
    description = TaskDescription(
        image_wire(results=Depth, result_columns=("depth",)),
        outputs=ModelOutputs(("predicted_depth",), numbers=("predicted_depth",)),
        rows=replace(
            IMAGE_ROWS, smaller_results="smaller images, or return_predicted_depth: false"
        ),
    )
    parameters = DepthEstimationParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._resize = require_post_processing(
            self.image_processor, "post_process_depth_estimation"
        )

    def result_numbers(self, item: MediaInput, rows: Sequence[ImageRow]) -> int:
        returned = item.parameters.return_predicted_depth
        return sum(row.height * row.width for row in rows) if returned else 0

    def decode(self, item: MediaInput, rows: Sequence[ImageRow], outputs: Sequence[Outputs]) -> Any:
        size = (rows[0].height, rows[0].width)
        resized = self._resize(as_batch(outputs[0]), [size])[0]["predicted_depth"]
        # Some processors drop a side of one pixel.
        depth = resized.numpy().reshape(size)
        result: dict[str, Any] = {"depth": png_in_base64(_as_picture(depth))}
        if item.parameters.return_predicted_depth:
            result["predicted_depth"] = as_list(depth)
        return result


def _as_picture(depth: npt.NDArray[Any]) -> Image.Image:
    """Return depths as a grey image, the least black and the greatest white."""
    span = float(depth.max() - depth.min())
    scaled = (depth - depth.min()) / span if span > 0 else np.zeros_like(depth)
    return Image.fromarray((scaled * 255).astype(np.uint8))
