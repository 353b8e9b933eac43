"""JPEG files that take as long to decode as photographs: smooth areas, edges and noise."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
from PIL import Image

SIZE = (640, 480)
# The grid of colours that is enlarged to smooth areas.
GRID = (12, 9)
SHAPES = 12
NOISE = 6.0
QUALITY = 85


def photographs(count: int, seed: int = 0) -> list[str]:
    """Return JPEG files in base64."""
    rng = np.random.default_rng(seed)
    return [base64.b64encode(_jpeg(_picture(rng))).decode() for _ in range(count)]


def _picture(rng: np.random.Generator) -> Image.Image:
    grid = rng.integers(0, 256, (GRID[1], GRID[0], 3), dtype=np.uint8)
    pixels = np.asarray(Image.fromarray(grid).resize(SIZE, Image.Resampling.BICUBIC)).astype(float)
    for _ in range(SHAPES):
        left, top = rng.integers(0, SIZE[0] - 80), rng.integers(0, SIZE[1] - 80)
        width, height = rng.integers(20, 80, 2)
        pixels[top : top + height, left : left + width] += rng.integers(-90, 90, 3)
    pixels += rng.normal(0, NOISE, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def _jpeg(picture: Image.Image) -> bytes:
    stream = BytesIO()
    picture.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()
