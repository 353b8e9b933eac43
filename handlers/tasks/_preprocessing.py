"""Preprocessing of images as the image processor of a checkpoint does it, with less arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from transformers.image_processing_utils import BaseImageProcessor

PIXELS = "pixel_values"
# What the two ways are compared on, in width and height.
TRIAL_SIZES = ((64, 48), (48, 80))
TOLERANCE = 1e-5
Arrays = Mapping[str, npt.NDArray[Any]]


class Preprocessor:
    """Makes the model inputs of an image.

    An image processor rescales in float64 and then subtracts and divides, each with a copy. Where a
    trial shows the same numbers, pixels are multiplied and added in float32 instead.

    Args:
        image_processor: the image processor of a checkpoint.
    """

    def __init__(self, image_processor: BaseImageProcessor) -> None:
        self._processor = image_processor
        self._scale, self._offset = _affine(image_processor)
        self._is_folded = all(self._folds(_noise(size)) for size in TRIAL_SIZES)

    def __call__(self, image: Image.Image) -> Arrays:
        """Return the arrays of an image in RGB.

        Raises:
            ValueError: the image processor does not take an image of this size.
        """
        return self._fold(image) if self._is_folded else self._process(image)

    @property
    def is_folded(self) -> bool:
        """Whether rescaling and normalization are one step."""
        return self._is_folded

    def _process(self, image: Image.Image, **options: Any) -> Arrays:
        features = self._processor(images=image, return_tensors="np", **options)
        return {name: np.asarray(values[0]) for name, values in features.items()}

    def _fold(self, image: Image.Image) -> Arrays:
        arrays = self._process(image, do_rescale=False, do_normalize=False)
        pixels = np.multiply(arrays[PIXELS], self._scale, dtype=np.float32)
        return {**arrays, PIXELS: np.add(pixels, self._offset, out=pixels)}

    def _folds(self, image: Image.Image) -> bool:
        try:
            expected, found = self._process(image), self._fold(image)
        except Exception:  # noqa: BLE001 - each processor checks its arguments in its own way
            return False
        return expected.keys() == found.keys() and all(
            expected[name].shape == found[name].shape
            and expected[name].dtype == found[name].dtype
            and np.allclose(expected[name], found[name], rtol=0, atol=TOLERANCE)
            for name in expected
        )


def _affine(image_processor: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return what pixels from 0 to 255 are multiplied with, and what is added to them.

    Returns:
        Arrays of shape (channels, 1, 1).
    """
    rescales = getattr(image_processor, "do_rescale", None)
    factor = image_processor.rescale_factor if rescales else 1.0
    mean, std = 0.0, 1.0
    if getattr(image_processor, "do_normalize", None):
        mean, std = image_processor.image_mean, image_processor.image_std
    means, deviations = (
        np.atleast_1d(np.asarray(each, dtype=np.float64)).reshape(-1, 1, 1) for each in (mean, std)
    )
    scale, offset = factor / deviations, -means / deviations
    return scale.astype(np.float32), offset.astype(np.float32)


def _noise(size: tuple[int, int]) -> Image.Image:
    width, height = size
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
