"""The processor time of decoding and preprocessing an image, without the model."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_serve.handlers import tasks
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.media.images import read_image

MODE = "image_classification"
REPEATS = 3


@dataclass(frozen=True)
class ImageCosts:
    """Milliseconds of processor time for one image.

    Attributes:
        decode_ms: from the bytes of a JPEG file to pixels.
        preprocess_ms: from pixels to the inputs of the model.
        processor_ms: the same by the image processor of the checkpoint alone.
    """

    decode_ms: float
    preprocess_ms: float
    processor_ms: float


def image_costs(checkpoint: Path, images: Sequence[str]) -> ImageCosts:
    """Measure a checkpoint's image processor on JPEG files in base64, with one thread."""
    handler = HandlerSection(mode=MODE)
    task: Any = tasks.get(MODE)(Checkpoint.read(checkpoint, handler), handler)
    files = [base64.b64decode(each) for each in images]
    pictures = [read_image(each, "image", handler.max_image_pixels) for each in files]
    return ImageCosts(
        _milliseconds(lambda file: read_image(file, "image", handler.max_image_pixels), files),
        _milliseconds(task.preprocess, pictures),
        _milliseconds(lambda image: task.image_processor(image, return_tensors="np"), pictures),
    )


def _milliseconds(do: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Return the least mean of several passes."""
    means = []
    for _ in range(REPEATS):
        start = time.thread_time()
        for item in items:
            do(item)
        means.append(1000 * (time.thread_time() - start) / len(items))
    return min(means)
