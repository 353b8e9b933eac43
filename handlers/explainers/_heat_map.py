"""The pixels of a model as a picture, and the importances of its patches as a heat map over it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from handlers.types.parameters import BaselineImage

Array = npt.NDArray[Any]

# The longer side of a picture in an answer, in pixels.
LONGEST_SIDE = 512
JPEG_QUALITY = 90
# The colours of the page: blue supports the target, orange opposes it.
SUPPORTS, OPPOSES = (47, 127, 214), (229, 138, 31)
# A blurred image keeps as many colours along its longer side.
BLURRED_SIDE = 4


@dataclass(frozen=True)
class PixelScale:
    """How an image processor turns colours from 0 to 1 to the numbers that a model reads.

    Attributes:
        mean: what it subtracts from each channel.
        deviation: what it divides each channel by.
        crops: whether what a model reads may be a part of the image, or have a frame around it.
    """

    mean: Array
    deviation: Array
    crops: bool

    @classmethod
    def of(cls, image_processor: Any) -> PixelScale:
        """Return the scale of an image processor."""

        def setting(name: str, default: Any) -> Any:
            value = getattr(image_processor, name, None)
            return default if value is None else value

        normalizes = setting("do_normalize", False)
        mean = setting("image_mean", 0.0) if normalizes else 0.0
        deviation = setting("image_std", 1.0) if normalizes else 1.0
        unit = 1.0 if setting("do_rescale", True) else 1 / 255
        return cls(
            np.reshape(np.asarray(mean, dtype=np.float32), (-1, 1, 1)) * unit,
            np.reshape(np.asarray(deviation, dtype=np.float32), (-1, 1, 1)) * unit,
            crops=bool(setting("do_center_crop", False) or setting("do_pad", False)),
        )

    def to_colours(self, pixels: Array) -> Array:
        """Return colours from 0 to 255. Shape: (height, width, 3)."""
        colours = (pixels * self.deviation + self.mean) * 255
        three = np.broadcast_to(colours, (3, *colours.shape[1:]))
        return np.moveaxis(three, 0, -1).clip(0, 255).round().astype(np.uint8)

    def baseline(self, kind: BaselineImage, pixels: Array) -> Array:
        """Return what replaces an image. Shape: that of the pixels, (channels, height, width)."""
        if kind == "blur":
            return _blurred(pixels)
        mean = pixels.mean(axis=(1, 2), keepdims=True)
        colour = mean if kind == "mean" else -self.mean / self.deviation
        return np.broadcast_to(colour.astype(pixels.dtype), pixels.shape)


def picture(scale: PixelScale, pixels: Array, height: int, width: int) -> Image.Image:
    """Return the image that a model reads, in its size, with the proportions that were sent.

    Args:
        scale: how its pixels were computed.
        pixels: what the model reads. Shape: (channels, height, width).
        height: the height of the image that was sent.
        width: its width.
    """
    read = Image.fromarray(scale.to_colours(pixels))
    # What was cropped or padded has its own proportions, and those are not distorted.
    proportions = (read.width, read.height) if scale.crops else (width, height)
    longest = min(LONGEST_SIDE, max(read.size))
    size = [max(1, round(longest * side / max(proportions))) for side in proportions]
    return read.resize((size[0], size[1]), Image.Resampling.BILINEAR)


def heat_map(importances: Sequence[Sequence[float]], size: tuple[int, int]) -> Image.Image:
    """Return a picture to lay over an image: each patch in blue or orange, the weaker the clearer.

    Args:
        importances: the importance of each patch, row by row.
        size: width and height of the picture.
    """
    values = np.asarray(importances, dtype=np.float64)
    strength = np.abs(values) / (np.abs(values).max() or 1.0)
    colours = np.where((values >= 0)[..., None], SUPPORTS, OPPOSES)
    layers = np.concatenate([colours, (255 * strength).round()[..., None]], axis=-1)
    patches = Image.fromarray(layers.astype(np.uint8), "RGBA")
    return patches.resize(size, Image.Resampling.NEAREST)


def as_jpeg(image: Image.Image) -> str:
    """Return a picture as JPEG in base64."""
    stream = BytesIO()
    # With every colour of a small image; by default neighbours share theirs.
    image.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _blurred(pixels: Array) -> Array:
    """Return an image with some colours that flow into each other."""
    height, width = pixels.shape[1:]
    rows, columns = (
        max(1, round(BLURRED_SIDE * side / max(height, width))) for side in (height, width)
    )
    image = torch.from_numpy(pixels)[None].float()
    colours = torch.nn.functional.adaptive_avg_pool2d(image, (rows, columns))
    blurred = torch.nn.functional.interpolate(colours, (height, width), mode="bilinear")
    return blurred[0].numpy()
