"""An image to the masks of all things in it, found from a grid of points.

{"inputs": "<base64>"} -> {"masks": ["<PNG in base64>", …], "scores": [0.99, …]}

The body may also be the bytes of the image file. A mask is a grey picture of the image's size,
white where the thing is. The image, and with `crops_n_layers` parts of it, is encoded once; the
model makes three masks for each point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from pydantic import Field
from typing_extensions import TypedDict

from ..batching.padding import memory_errors, run_by_shape
from ..batching.rows import Outputs, RowOutcome
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.model_config import ModelConfig
from ..errors import DeadlineExceeded, RequestError, RequestTooLarge, WrongCheckpoint, attempt
from ..media.images import png_in_base64
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline, before
from ..process.ranks import agree
from ..telemetry.metrics import Meter
from ..types.model_info import IMAGE_COLUMN, Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames
from .bases.image import EXAMPLE, IMAGE_ROWS, PIXELS, ImageRow, ImageTask, require_post_processing
from .bases.media import MediaInput

Array = npt.NDArray[Any]
Box = tuple[int, int, int, int]
Share = Annotated[float, Field(ge=0, le=1)]
# Values of masks in the size of the image that are computed at once, with 4 bytes each.
PART_VALUES = 32_000_000
# Bytes of masks, with a bit for each pixel of their boxes, that are kept until the best are chosen.
MAX_KEPT_BYTES = 200_000_000
MAX_MASK_PIXELS = 500_000_000
# Masks that end this close to the edge of a part, in pixels, are found whole in another one.
EDGE = 20


class GeneratedMasks(TypedDict):
    """Masks, the best first, and their scores; with their boxes where a request asks for them."""

    masks: list[str]
    scores: list[float]
    bounding_boxes: NotRequired[list[list[float]]]


class MaskGenerationParameters(Parameters):
    """Parameters of the mask-generation pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={
            "batch_size": ANY,
            "timeout": ANY,
            "output_rle_mask": (False,),
            "max_hole_area": (None,),
            "max_sprinkle_area": (None, 0),
        }
    )

    points_per_batch: Annotated[int, Field(ge=1, le=1024)] = 64
    """Most points in one forward, which changes the speed only."""
    points_per_crop: Annotated[int, Field(ge=1, le=64)] = 32
    """Points of the grid on each side of an image."""
    pred_iou_thresh: Share = 0.88
    """The lowest quality of a mask by the model's own estimate."""
    stability_score_thresh: Share = 0.95
    """The lowest share of a mask that stays where `mask_threshold` changes."""
    stability_score_offset: Annotated[float, Field(ge=0, le=100)] = 1.0
    """How much it changes."""
    mask_threshold: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """The logit above which a pixel is part of a mask."""
    crops_n_layers: Annotated[int, Field(ge=0, le=2)] = 0
    """Looks for smaller things in parts of the image, too: 4 with 1, 20 with 2."""
    crop_overlap_ratio: Annotated[float, Field(ge=0, lt=1)] = 512 / 1500
    """The overlap of the first parts, as a share of the image's shorter side."""
    crop_n_points_downscale_factor: Annotated[int, Field(ge=1, le=8)] = 1
    """Divides `points_per_crop` in each layer of parts."""
    crops_nms_thresh: Share = 0.7
    """The overlap of the boxes of two masks above which the one with the lower score is left
    out."""
    output_bboxes_mask: bool = False
    """Returns the box of each mask, too: left, top, right, bottom."""


@dataclass(frozen=True)
class CropRow(ImageRow):
    """An image or a part of it.

    Attributes:
        box: its place in the image: left, top, right, bottom.
        image_size: height and width of the image.
        points: the points on each side of its grid.
    """

    box: Box
    image_size: tuple[int, int]
    points: int
    parameters: MaskGenerationParameters

    @property
    def grid(self) -> torch.Tensor:
        """The points of the grid, in pixels after preprocessing. Shape: (points, 2)."""
        height, width = self.features["reshaped_input_sizes"].tolist()
        offset = 1 / (2 * self.points)
        side = torch.linspace(offset, 1 - offset, self.points, dtype=torch.float64)
        y, x = torch.meshgrid(side, side, indexing="ij")
        return torch.stack([x.flatten() * width, y.flatten() * height], dim=1).float()


@dataclass(frozen=True)
class FoundMask:
    """A mask of a part of an image.

    Attributes:
        score: its quality by the model's own estimate.
        box: left, top, right and bottom of its pixels in the image.
        bits: its pixels within the box, 8 in a byte.
    """

    score: float
    box: Box
    bits: npt.NDArray[np.uint8]

    def draw(self, size: tuple[int, int]) -> str:
        """Return the mask as a PNG file in base64, for an image with a height and a width."""
        left, top, right, bottom = self.box
        shape = (bottom - top + 1, right - left + 1)
        pixels = np.unpackbits(self.bits, count=shape[0] * shape[1]).reshape(shape)
        picture = np.zeros(size, dtype=np.uint8)
        picture[top : bottom + 1, left : right + 1] = pixels * np.uint8(255)
        return png_in_base64(Image.fromarray(picture))


class Task(ImageTask):
    """Mask generation; answers as the mask-generation pipeline does."""

    auto_class = "AutoModelForMaskGeneration"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=GeneratedMasks,
            example={
                **EXAMPLE,
                "parameters": {"points_per_crop": 2},
            },
            input_columns=(IMAGE_COLUMN,),
        ),
        outputs=ModelOutputs(("iou_scores", "pred_masks")),
        rows=IMAGE_ROWS,
        exports=Exports(supported=False, one_forward=False),
    )
    parameters = MaskGenerationParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        if checkpoint.config.model_type != "sam":
            raise WrongCheckpoint(
                "config.json",
                f"is that of a {checkpoint.config.model_type} model",
                "use a checkpoint of SAM",
            )
        super().__init__(checkpoint, settings)
        self._resize = require_post_processing(self.image_processor, "post_process_masks")
        padded = self.image_processor.pad_size
        self._padded_pixels = int(padded["height"] * padded["width"])

    def parts(self, item: MediaInput, image: Image.Image) -> list[Image.Image]:
        return [image.crop(box) for box, _ in crops(item.parameters, image.height, image.width)]

    def encode(self, inputs: Sequence[MediaInput]) -> list[list[ImageRow] | RequestError]:
        return [
            rows if isinstance(rows, RequestError) else _with_boxes(rows, item.parameters)
            for item, rows in zip(inputs, super().encode(inputs), strict=True)
        ]

    def run(
        self, model: Model, rows: Sequence[Any], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        embedded = run_by_shape(
            before(deadline, lambda batch: {"image": model.embed_images({PIXELS: batch[PIXELS]})}),
            rows,
            budget=self.budget,
            meter=meter,
        )
        find = partial(self._find_masks, model, meter, deadline)
        return [
            outcome if isinstance(outcome, RequestError) else attempt(find, row, outcome["image"])
            for row, outcome in zip(rows, embedded, strict=True)
        ]

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        few = MaskGenerationParameters(points_per_crop=1)
        return [
            [_with_boxes([row], few)[0] for row in rows]
            for rows in super().warmup_batches(config, model)[-1:]
        ]

    def decode(
        self, item: MediaInput, rows: Sequence[Any], outputs: Sequence[Outputs]
    ) -> dict[str, Any]:
        found = [mask for each in outputs for mask in each["masks"]]
        boxes = np.array([mask.box for mask in found], dtype=np.float32).reshape(-1, 4)
        scores = np.array([mask.score for mask in found], dtype=np.float32)
        best = [found[each] for each in distinct(boxes, scores, item.parameters.crops_nms_thresh)]
        size = rows[0].image_size
        _check_masks(len(best) * math.prod(size), MAX_MASK_PIXELS, "pixels")
        result: dict[str, Any] = {
            "masks": list(self._threads.map(lambda mask: mask.draw(size), best)),
            "scores": [mask.score for mask in best],
        }
        if item.parameters.output_bboxes_mask:
            result["bounding_boxes"] = [list(map(float, mask.box)) for mask in best]
        return result

    def _find_masks(
        self, model: Model, meter: Meter, deadline: Deadline, row: CropRow, embedding: Array
    ) -> Outputs:
        """Return the masks of a part of an image that are good enough."""
        forward = before(deadline, model.forward)
        image = torch.from_numpy(embedding)[None]
        found: list[FoundMask] = []
        kept = 0
        for points in row.grid.split(row.parameters.points_per_batch):
            batch = {
                "image_embeddings": image,
                "input_points": points[None, :, None],
                "input_labels": torch.ones(1, len(points), 1, dtype=torch.int64),
            }
            with memory_errors():
                outputs = forward(batch)
                meter.count(forwards=1)
                masks = self._good_masks(row, outputs, deadline)
                is_late = False
                try:
                    for mask in masks:
                        kept += mask.bits.nbytes
                        _check_masks(kept, MAX_KEPT_BYTES, "bytes")
                        found.append(mask)
                except DeadlineExceeded:
                    is_late = True
                if agree(is_late):
                    raise DeadlineExceeded
        return {"masks": found}

    def _good_masks(
        self, row: CropRow, outputs: Mapping[str, torch.Tensor], deadline: Deadline
    ) -> Iterator[FoundMask]:
        """Yield the masks of some points that are good enough, in parts that fit in memory.

        Raises:
            DeadlineExceeded: the deadline passes before the last part.
        """
        parameters = row.parameters
        scores = outputs["iou_scores"].float().cpu().flatten()
        logits = outputs["pred_masks"].float().cpu().flatten(0, 2)
        # A threshold of 0 keeps all, also scores below it.
        good = scores > (parameters.pred_iou_thresh or -torch.inf)
        scores, logits = scores[good], logits[good]
        step = max(1, PART_VALUES // max(row.height * row.width, self._padded_pixels))
        for first in range(0, len(scores), step):
            if deadline.passed:
                raise DeadlineExceeded
            (resized,) = self._resize(
                [logits[first : first + step, None]],
                [(row.height, row.width)],
                reshaped_input_sizes=[row.features["reshaped_input_sizes"].tolist()],
                binarize=False,
            )
            yield from _stable_masks(row, scores[first : first + step], resized[:, 0])


def crops(parameters: MaskGenerationParameters, height: int, width: int) -> list[tuple[Box, int]]:
    """Return the place of an image and of its parts, with the points on each side of their grids.

    Each layer has four times as many parts as the one before, fewer where the image has fewer
    pixels than parts.
    """
    found = [((0, 0, width, height), parameters.points_per_crop)]
    for layer in range(1, parameters.crops_n_layers + 1):
        count = 2**layer
        overlap = int(parameters.crop_overlap_ratio * min(height, width) * (2 / count))
        across, down = (
            math.ceil((overlap * (count - 1) + side) / count) for side in (width, height)
        )
        points = parameters.points_per_crop // parameters.crop_n_points_downscale_factor**layer
        for column, line in product(range(count), range(count)):
            left, top = column * (across - overlap), line * (down - overlap)
            box = (left, top, min(left + across, width), min(top + down, height))
            if box[0] < box[2] and box[1] < box[3]:
                found.append((box, max(1, points)))
    return found


def distinct(boxes: Array, scores: Array, threshold: float) -> list[int]:
    """Return which boxes overlap with no better one, best first (non-maximum suppression).

    Args:
        boxes: left, top, right and bottom of each. Shape: (boxes, 4).
        scores: the score of each. Shape: (boxes,).
        threshold: the largest share of two boxes together that they may have in common.
    """
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    waiting = np.argsort(-scores, kind="stable")
    chosen: list[int] = []
    while waiting.size:
        best, waiting = int(waiting[0]), waiting[1:]
        chosen.append(best)
        low = np.maximum(boxes[best, :2], boxes[waiting, :2])
        high = np.minimum(boxes[best, 2:], boxes[waiting, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=1)
        together = areas[best] + areas[waiting] - common
        waiting = waiting[common <= threshold * together]
    return chosen


def _with_boxes(rows: Sequence[ImageRow], parameters: MaskGenerationParameters) -> list[ImageRow]:
    size = (rows[0].height, rows[0].width)
    return [
        CropRow(row.features, row.size, row.height, row.width, box, size, points, parameters)
        for row, (box, points) in zip(rows, crops(parameters, *size), strict=True)
    ]


def _stable_masks(row: CropRow, scores: torch.Tensor, logits: torch.Tensor) -> Iterator[FoundMask]:
    parameters = row.parameters
    threshold, offset = parameters.mask_threshold, parameters.stability_score_offset
    inner = (logits > threshold + offset).sum((-1, -2))
    outer = (logits > threshold - offset).sum((-1, -2))
    # A threshold of 0 keeps all, also empty masks, whose stability is no number.
    least = parameters.stability_score_thresh
    stable = (inner / outer > least) if least else torch.ones_like(inner, dtype=torch.bool)
    for score, mask in zip(scores[stable].tolist(), logits[stable] > threshold, strict=True):
        box = _box_of(mask)
        if _is_whole(box, row):
            pixels = mask[box[1] : box[3] + 1, box[0] : box[2] + 1].numpy()
            left, top = row.box[:2]
            place = (box[0] + left, box[1] + top, box[2] + left, box[3] + top)
            yield FoundMask(score, place, np.packbits(pixels))


def _box_of(mask: torch.Tensor) -> Box:
    """Return left, top, right and bottom of the pixels of a mask; zeros for an empty one."""
    columns, lines = mask.any(0).nonzero().flatten(), mask.any(1).nonzero().flatten()
    if not len(columns):
        return (0, 0, 0, 0)
    return int(columns[0]), int(lines[0]), int(columns[-1]), int(lines[-1])


def _is_whole(box: Box, row: CropRow) -> bool:
    """Return whether a box ends at no edge of a part that is not one of the image, too."""
    height, width = row.image_size
    left, top = row.box[:2]
    in_image = (box[0] + left, box[1] + top, box[2] + left, box[3] + top)
    edges = zip(in_image, row.box, (0, 0, width, height), strict=True)
    return not any(
        abs(side - edge) <= EDGE and abs(side - outer) > EDGE for side, edge, outer in edges
    )


def _check_masks(count: int, limit: int, unit: str) -> None:
    """Check that masks are not too large together.

    Raises:
        RequestTooLarge: they are.
    """
    if count > limit:
        raise RequestTooLarge(
            f"The masks of this image have more than the {limit:,} {unit} that this mode computes"
            " for an image; send a smaller image, or ask for higher thresholds."
        )
