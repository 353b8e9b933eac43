"""The base of modes whose rows are images: reading, preprocessing, and batches of equal shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

from handlers.batching.padding import Batch
from handlers.batching.rows import RowOutcome
from handlers.batching.shapes import ArrayRow, run_by_shape, stack
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.config.model_config import ModelConfig
from handlers.errors import RequestError, attempt
from handlers.media.images import image_bytes, read_image
from handlers.runtime.deadline import NO_DEADLINE, Deadline, before
from handlers.runtime.model import Model
from handlers.schemas.model_info import IMAGE_COLUMN, Limits
from handlers.tasks.base import BaseTask
from handlers.telemetry.meter import Meter

QueryT = TypeVar("QueryT")

PIXELS = "pixel_values"
# A data URI has a few characters before its base64, which may be broken into lines.
URI_CHARACTERS = 200
# 32 images of the size that most models read.
DEFAULT_BATCH_PIXELS = 32 * 224 * 224
SAMPLE_SIDE = 64


class ImageTask(BaseTask[QueryT, ArrayRow]):
    """A mode whose rows are images.

    Images are decoded and preprocessed in threads of its own, before the model is called.
    """

    packs = False
    exports = False
    reads_media = True
    input_columns = (IMAGE_COLUMN,)

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.image_processor = checkpoint.image_processor
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="image")

    def check_image(self, inputs: Any, name: str = "inputs") -> bytes:
        """Return the bytes of an image file.

        Raises:
            RequestError: the inputs are no image, or too large.
        """
        return image_bytes(inputs, name, self.settings.max_image_bytes)

    def encode_images(self, files: Sequence[bytes]) -> list[list[ArrayRow] | RequestError]:
        """Return the row of each image; one that cannot be read becomes its error."""
        return list(self._threads.map(lambda file: attempt(self._rows_of, file), files))

    def run(
        self, model: Model, rows: Sequence[ArrayRow], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        return run_by_shape(
            before(deadline, model.forward),
            rows,
            budget=self.budget,
            meter=meter,
            keep=self.keep,
        )

    def collate(self, rows: Sequence[ArrayRow]) -> Batch:
        return stack(rows)

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return grey images, two, as many as a batch has, and one."""
        row = self.preprocess(np.full((SAMPLE_SIDE, SAMPLE_SIDE, 3), 128, dtype=np.uint8))
        most = max(1, self.budget // row.cost)
        counts = dict.fromkeys(min(count, most) for count in (2, max(2, config.batchSize), 1))
        return [[row] * count for count in counts]

    def preprocess(self, image: Any) -> ArrayRow:
        """Return the row of an image that is decoded.

        Args:
            image: an image of Pillow in RGB, or an array of shape (height, width, 3).
        """
        features: Mapping[str, Any] = self.image_processor(images=image, return_tensors="np")
        arrays = {name: np.asarray(features[name][0]) for name in self.model_inputs}
        height, width = arrays[PIXELS].shape[-2:]
        return ArrayRow(arrays, height * width)

    @property
    def model_inputs(self) -> tuple[str, ...]:
        return (PIXELS,)

    @property
    def budget(self) -> int:
        """The maximum number of pixels in one forward, after preprocessing."""
        return self.settings.max_batch_pixels or DEFAULT_BATCH_PIXELS

    @property
    def limits(self) -> Limits:
        return Limits(
            max_length=None,
            max_rows=self.settings.max_rows,
            max_characters=self.settings.max_image_bytes * 4 // 3 + URI_CHARACTERS,
            truncation=False,
        )

    def _rows_of(self, file: bytes) -> list[ArrayRow]:
        image = read_image(file, "The image", self.settings.max_image_pixels)
        return [self.preprocess(image)]
