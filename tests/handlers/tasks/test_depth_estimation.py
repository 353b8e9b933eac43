"""Depth estimation: pictures and numbers of the image's size."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hf_serve.demo_models.synthetic_images import as_png
from hf_serve.handlers.tasks.depth_estimation import _as_picture
from tests import vision_families
from tests.images import IMAGES, TEXTS
from tests.sentences import Sentence
from tests.serving import Served, read_png

MODE = "depth_estimation"


def test_a_depth_has_the_size_of_its_image(served: Callable[..., Served]) -> None:
    for image, found in zip(IMAGES, served(MODE).ask(TEXTS), strict=True):
        assert read_png(found["depth"]).shape == (image.height, image.width)
        assert np.asarray(found["predicted_depth"]).shape == (image.height, image.width)


@pytest.mark.parametrize("family", ["DPTForDepthEstimation", "DepthAnythingForDepthEstimation"])
def test_an_image_with_a_side_of_one_pixel_has_a_depth(tmp_path: Path, family: str) -> None:
    model = Served(vision_families.write(tmp_path / "model", family), MODE)
    for width, height in ((1, 1), (2, 1), (1, 2)):
        found = model.ask(base64.b64encode(as_png(IMAGES[0].resize((width, height)))).decode())
        assert read_png(found["depth"]).shape == (height, width)
        assert np.asarray(found["predicted_depth"]).shape == (height, width)


def test_the_picture_may_be_all(served: Callable[..., Served]) -> None:
    assert served(MODE).ask(TEXTS[0], return_predicted_depth=False).keys() == {"depth"}


def test_an_image_whose_size_stays_is_refused_beyond_the_pixels_of_a_batch(
    served: Callable[..., Served],
) -> None:
    model = served(MODE, max_batch_pixels=5_000)
    large = base64.b64encode(as_png(IMAGES[0].resize((96, 64)))).decode()
    found, good = model.ask([large, TEXTS[1]])
    assert (found["code"], found["message"]) == (
        413,
        Sentence("6,144", "5,000"),
    )
    assert good.keys() == {"depth", "predicted_depth"}


def test_an_even_depth_is_a_black_picture() -> None:
    picture = _as_picture(np.full((2, 3), 4.0, dtype=np.float32))
    assert np.asarray(picture).tolist() == [[0, 0, 0]] * 2
