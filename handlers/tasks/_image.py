"""The base of modes whose rows are images: reading, preprocessing, and batches of equal shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from PIL import Image

from handlers.batching.rows import Outputs
from handlers.batching.shapes import ArrayRow
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.checkpoints.graph_inputs import ArrayInputs
from handlers.config.handler_section import HandlerSection
from handlers.config.model_config import ModelConfig
from handlers.errors import (
    RequestTooLarge,
    Unprocessable,
    WrongCheckpoint,
    summarize,
)
from handlers.media.images import IMAGE, read_image
from handlers.model import Model
from handlers.tasks._media import MediaQuery, MediaTask
from handlers.tasks._preprocessing import PIXELS, Preprocessor
from handlers.types.model_info import IMAGE_COLUMN, Columns

# 32 images of the size that most models read.
DEFAULT_BATCH_PIXELS = 32 * 224 * 224
# A red square of 64 x 64 pixels, as PNG in base64.
SAMPLE_INPUTS = {
    "inputs": (
        "iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQMAAACQp+OdAAAAA1BMVEXIKChQLvxyAAAAD0lEQVR42mNgGAWj"
        "gHwAAAJAAAHgTR1EAAAAAElFTkSuQmCC"
    )
}
SAMPLE = Image.new("RGB", (64, 64), "grey")
# Images of these sizes have rows of one shape where the image processor resizes all to one size.
SAMPLE_SIZES = ((64, 64), (96, 64), (64, 128), (512, 512))


@dataclass(frozen=True)
class ImageRow(ArrayRow):
    """The model inputs of one image.

    Attributes:
        height: the height of the image in pixels, before preprocessing.
        width: its width.
    """

    height: int
    width: int


class ImageTask(MediaTask[ImageRow]):
    """A mode whose rows are images."""

    smaller_requests = "fewer or smaller images"
    cost_unit = "pixels"
    input_columns: ClassVar[Sequence[Columns]] = (IMAGE_COLUMN,)

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings, IMAGE, settings.max_image_bytes)
        self.image_processor = checkpoint.image_processor
        self._preprocessor = Preprocessor(self.image_processor)
        row = self.preprocess(SAMPLE)
        # A model with images of one size takes them, however large they are.
        self._most_pixels = max(self.budget, row.size)

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return grey images, two, as many as a batch has, and one."""
        row = self.preprocess(SAMPLE)
        most = max(1, self.budget // row.cost)
        counts = dict.fromkeys(min(count, most) for count in (2, max(2, config.batchSize), 1))
        return [[row] * count for count in counts]

    def preprocess(self, image: Image.Image) -> ImageRow:
        """Return the row of an image in RGB."""
        arrays = self._preprocessor(image)
        height, width = arrays[PIXELS].shape[-2:]
        return ImageRow(arrays, height * width, image.height, image.width)

    @property
    def graph_inputs(self) -> ArrayInputs:
        rows = [self.preprocess(SAMPLE.resize(size)) for size in SAMPLE_SIZES]
        if len({row.shape for row in rows}) > 1:
            raise WrongCheckpoint(
                "preprocessor_config.json",
                "gives images of several sizes to the model, and an exported graph takes one",
                "use save_mode: pretrained, or give it a size of height and width",
            )
        return ArrayInputs(rows[0].features)

    @property
    def budget(self) -> int:
        """The maximum number of pixels in one forward, after preprocessing."""
        return self.settings.max_batch_pixels or DEFAULT_BATCH_PIXELS

    def read(self, query: MediaQuery, file: bytes) -> list[ImageRow]:
        image = read_image(file, "The image", self.settings.max_image_pixels)
        return [self._row_of(part) for part in self.parts(query, image)]

    def parts(self, query: MediaQuery, image: Image.Image) -> list[Image.Image]:
        """Return the images that are rows of a query: the image itself, or parts of it, too."""
        return [image]

    def _row_of(self, image: Image.Image) -> ImageRow:
        try:
            row = self.preprocess(image)
        except ValueError as error:
            raise Unprocessable(
                f"The image has {image.width:,} x {image.height:,} pixels, which the image"
                f" processor of this model does not take ({summarize(error)}); send a larger one."
            ) from None
        if row.size > self._most_pixels:
            raise RequestTooLarge(
                f"The image has {row.size:,} pixels after preprocessing, and this model takes"
                f" {self._most_pixels:,}; send a smaller image."
            )
        return row


def require_post_processing(image_processor: Any, name: str) -> Callable[..., Any]:
    """Return the method of an image processor that turns outputs into results.

    Raises:
        WrongCheckpoint: it has none of that name.
    """
    method = getattr(image_processor, name, None)
    if method is None:
        kind = type(image_processor).__name__
        raise WrongCheckpoint(
            "preprocessor_config.json",
            f"is that of {kind}, which has no {name}",
            "pack the preprocessor_config.json of a checkpoint of this mode",
        )
    found: Callable[..., Any] = method
    return found


def as_batch(outputs: Outputs) -> SimpleNamespace:
    """Return the outputs of a row as the methods of image processors read them, a batch of one.

    A `ModelOutput` would register its type at the first use, after which torch compiles some models
    once more.
    """
    return SimpleNamespace(
        **{name: torch.from_numpy(array)[None] for name, array in outputs.items()}
    )
