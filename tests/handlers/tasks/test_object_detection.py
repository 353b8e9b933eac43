"""Object detection: the boxes of images in other proportions, and wrong checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.images import IMAGES, TEXTS
from tests.sentences import refused
from tests.serving import Served, recorded_shapes

MODE = "object_detection"


def test_boxes_are_in_pixels_of_each_image(served: Callable[..., Served]) -> None:
    for image, found in zip(IMAGES, served(MODE).ask(TEXTS, threshold=0), strict=True):
        assert found
        for each in found:
            box = each["box"]
            assert box["xmin"] >= -image.width
            assert box["xmax"] <= 2 * image.width
            assert box["ymax"] <= 2 * image.height


def test_a_threshold_leaves_out_what_is_less_certain(served: Callable[..., Served]) -> None:
    model = served(MODE)
    every = model.ask(TEXTS[0], threshold=0)
    middle = sorted(each["score"] for each in every)[len(every) // 2]
    found = model.ask(TEXTS[0], threshold=middle)
    assert found == [each for each in every if each["score"] > middle]
    status, message = model.refuse(TEXTS[0], threshold=1.5)
    assert (status, "threshold" in message) == (400, True)


def test_images_of_equal_shapes_share_a_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Engine = Served(tiny.write(tmp_path / "model", MODE), MODE).engine
    shapes = recorded_shapes(engine, "pixel_values", monkeypatch)
    engine.predict([Request(text) for text in [*TEXTS, TEXTS[1]]])
    assert sorted(shape[0] for shape in shapes) == [1, 2, 2]


def test_an_image_processor_that_finds_no_objects_is_refused(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    ViTImageProcessorPil().save_pretrained(folder)
    with refused(WrongCheckpoint, "post_process_object_detection"):
        Served(folder, MODE)
