"""An image to its segments, each with a label, a score and a mask.

{"inputs": "<base64>"} -> [{"score": 0.99, "label": "cat", "mask": "<PNG in base64>"}, …]

The body may also be the bytes of the image file. A mask is a grey picture of the image's size,
white where the segment is. Segments of semantic segmentation have no score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from pydantic import Field
from torch.nn import functional
from transformers import PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..checkpoints.checkpoint import Checkpoint
from ..compat.transformers import has_model
from ..config.handler_section import HandlerSection
from ..config.messages import enumerate_names
from ..errors import RequestTooLarge, Unprocessable, WrongCheckpoint
from ..media.images import png_in_base64
from ..types.model_info import ModelOutputs, TaskDescription
from ..types.parameters import ANY, Parameters, PipelineNames
from ..types.request import Request
from .bases.image import GREY_IMAGE, IMAGE_ROWS, PIXELS, ImageRow, ImageTask, as_batch, image_wire
from .bases.labels import sigmoid, softmax
from .bases.media import MediaInput

Subtask = Literal["panoptic", "instance", "semantic"]
Probability = Annotated[float, Field(ge=0, le=1)]
# Each family of models has some of these outputs.
OUTPUTS = ("logits", "pred_masks", "class_queries_logits", "masks_queries_logits")
# In the order in which the pipeline tries them.
SUBTASKS: tuple[Subtask, ...] = ("panoptic", "instance", "semantic")
# Each has 4 bytes: maps of probabilities in the size of the image, which are there at once.
MAX_MAP_VALUES = 200_000_000
# Values of such maps that are computed one part after the other.
MAX_CLASS_VALUES = 2_000_000_000
MAX_MASK_PIXELS = 500_000_000


class Segment(TypedDict):
    """One segment of an image. Without scores, the score is null."""

    score: float | None
    label: str
    mask: str


class ImageSegmentationParameters(Parameters):
    """Parameters of the image-segmentation pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "timeout": ANY}
    )

    subtask: Subtask | None = None
    """What is segmented: `panoptic`, `instance` or `semantic`. Without it, the first of these that
    the image processor of the model does."""
    threshold: Probability = 0.9
    """The lowest score of a segment, for panoptic and instance segmentation."""
    mask_threshold: Probability = 0.5
    """The lowest probability of a pixel in a mask, for panoptic and instance segmentation."""
    overlap_mask_area_threshold: Probability = 0.5
    """The lowest share of a mask that other masks leave of it, for panoptic and instance
    segmentation."""


class Task(ImageTask):
    """Image segmentation; answers as the image-segmentation pipeline does."""

    auto_class = "AutoModelForSemanticSegmentation"
    description = TaskDescription(
        image_wire(results=list[Segment]),
        outputs=ModelOutputs(OUTPUTS, optional=OUTPUTS),
        rows=IMAGE_ROWS,
        has_labels=True,
    )
    parameters = ImageSegmentationParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._methods: dict[str, Callable[..., Any]] = {
            name: method for name in SUBTASKS if (method := self._post_processing(name))
        }
        self._first = next(iter(self._methods), "none")
        kind = type(self.image_processor).__name__
        if not self._methods or not self.preprocess(GREY_IMAGE).features.keys() <= {
            PIXELS,
            "pixel_mask",
        }:
            raise WrongCheckpoint(
                "preprocessor_config.json",
                f"is that of {kind}, which segments no image that is given alone",
                "use a checkpoint such as SegFormer, Mask2Former, MaskFormer or DETR",
            )

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        if has_model("AutoModelForUniversalSegmentation", config):
            return "AutoModelForUniversalSegmentation"
        return cls.auto_class

    def parse(self, request: Request) -> MediaInput:
        item = super().parse(request)
        subtask = item.parameters.subtask
        if subtask and subtask not in self._methods:
            raise Unprocessable(
                f"subtask is {subtask}, and this model does"
                f" {enumerate_names(list(self._methods))}; leave it out."
            )
        return item

    def decode(self, item: MediaInput, rows: Sequence[ImageRow], outputs: Sequence[Outputs]) -> Any:
        parameters: ImageSegmentationParameters = item.parameters
        size = (rows[0].height, rows[0].width)
        subtask = parameters.subtask or self._first
        if subtask == "semantic":
            return self._classes(outputs[0], size)
        return self._segments(subtask, parameters, outputs[0], size)

    def decision_scores(self, outputs: Outputs) -> Outputs:
        """Return the scores of the classes of some pixels. Shape: (…, height, width, classes).

        Those of a model whose queries have a class and a mask each are sums over the queries, as in
        semantic segmentation.
        """
        logits = outputs.get("logits")
        masks = outputs.get("masks_queries_logits", outputs.get("pred_masks"))
        if masks is None:
            return {"logits": np.moveaxis(_some_pixels(logits), -3, -1)}
        # The last class is no object.
        classes = softmax(outputs.get("class_queries_logits", logits))[..., :-1]
        scores = np.moveaxis(sigmoid(_some_pixels(masks)), -3, -1) @ classes[..., None, :, :]
        return {"logits": np.log(np.maximum(scores, np.finfo(np.float32).tiny))}

    def _segments(
        self,
        subtask: str,
        parameters: ImageSegmentationParameters,
        outputs: Outputs,
        size: tuple[int, int],
    ) -> list[dict[str, Any]]:
        _check_size(_kept(subtask, parameters.threshold, outputs), size, MAX_MAP_VALUES)
        # Without the set, the image processor of a panoptic model logs a warning for each image.
        fuse: dict[str, Any] = {"label_ids_to_fuse": set()} if subtask == "panoptic" else {}
        found = self._methods[subtask](
            as_batch(outputs),
            threshold=parameters.threshold,
            mask_threshold=parameters.mask_threshold,
            overlap_mask_area_threshold=parameters.overlap_mask_area_threshold,
            target_sizes=[size],
            **fuse,
        )[0]
        segments = found["segments_info"]
        masks = self._masks(found["segmentation"].numpy(), [each["id"] for each in segments])
        return [
            {"score": each["score"], "label": self.labels[each["label_id"]], "mask": mask}
            for each, mask in zip(segments, masks, strict=True)
        ]

    def _classes(self, outputs: Outputs, size: tuple[int, int]) -> list[dict[str, Any]]:
        """Return a segment for each class of which the image has pixels."""
        logits = outputs.get("logits")
        if logits is not None and logits.ndim == 3:
            _check_size(len(logits), size, MAX_CLASS_VALUES)
            classes = class_map(torch.from_numpy(logits), size).numpy()
        else:
            _check_size(len(self.labels), size, MAX_MAP_VALUES)
            classes = self._methods["semantic"](as_batch(outputs), target_sizes=[size])[0].numpy()
        numbers = np.flatnonzero(np.bincount(classes.ravel())).tolist()
        masks = self._masks(classes, numbers)
        return [
            {"score": None, "label": self.labels[number], "mask": mask}
            for number, mask in zip(numbers, masks, strict=True)
        ]

    def _masks(self, segmentation: npt.NDArray[Any], numbers: Sequence[int]) -> list[str]:
        """Return the pixels of each segment as a PNG file in base64."""
        _check_size(len(numbers), segmentation.shape, MAX_MASK_PIXELS)
        return list(self._threads.map(partial(_mask, segmentation), numbers))

    def _post_processing(self, subtask: str) -> Callable[..., Any] | None:
        return getattr(self.image_processor, f"post_process_{subtask}_segmentation", None)


def _some_pixels(maps: Any) -> npt.NDArray[Any]:
    """Return maps with each second pixel of both axes: their neighbours are mostly alike."""
    return np.asarray(maps)[..., ::2, ::2]


def class_map(logits: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return the class of each pixel of an image, the one with the highest interpolated logit.

    Those of all classes in the size of a photo would take gigabytes, so that one class after the
    other is compared with the best before.

    Args:
        logits: the logits of a model. Shape: (classes, height, width), of any size.
        size: height and width of the image.
    """
    best = torch.full(size, -torch.inf)
    classes = torch.zeros(size, dtype=torch.int32)
    for number in range(len(logits)):
        values = functional.interpolate(
            logits[None, number : number + 1], size=size, mode="bilinear", align_corners=False
        )[0, 0]
        classes.masked_fill_(values > best, number)
        torch.maximum(best, values, out=best)
    return classes


def _kept(subtask: str, threshold: float, outputs: Outputs) -> int:
    """Return how many maps of probabilities the image processor scales to the size of an image."""
    logits = torch.from_numpy(outputs.get("class_queries_logits", outputs.get("logits")))
    if subtask == "instance":
        return len(logits)
    # The last class is no object.
    scores, labels = logits.softmax(-1).max(-1)
    return int(((scores > threshold) & (labels < logits.shape[-1] - 1)).sum())


def _check_size(count: int, size: Sequence[int], limit: int) -> None:
    """Check that maps in the size of an image are not too large together.

    Raises:
        RequestTooLarge: they are.
    """
    height, width = size
    if count * height * width > limit:
        raise RequestTooLarge(
            f"The image has {width:,} x {height:,} pixels, and {count:,} maps of that size are more"
            f" than the {limit:,} pixels that this mode computes for an image; send a smaller image"
            ", or ask for a higher threshold."
        )


def _mask(segmentation: npt.NDArray[Any], number: int) -> str:
    white = (segmentation == number).astype(np.uint8) * np.uint8(255)
    return png_in_base64(Image.fromarray(white))
