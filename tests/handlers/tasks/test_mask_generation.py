"""Mask generation: overlapping boxes, parts of an image, and the limits of masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.errors import DeadlineExceeded, RequestTooLarge
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.tasks import mask_generation
from hf_serve.handlers.tasks.mask_generation import MaskGenerationParameters, crops, distinct
from hf_serve.handlers.types.request import Request
from tests.clock import Clock
from tests.images import IMAGES, TEXTS
from tests.modes import cases
from tests.serving import Served, read_png

MODE = "mask_generation"
FEW = cases(MODE).brief


def test_a_box_that_overlaps_with_a_better_one_is_left_out() -> None:
    boxes = np.array([[0, 0, 9, 9], [0, 0, 10, 9], [20, 0, 29, 9], [0, 0, 0, 0]], dtype=np.float32)
    scores = np.array([0.5, 0.9, 0.7, 0.1], dtype=np.float32)
    assert distinct(boxes, scores, 0.7) == [1, 2, 3]
    assert distinct(boxes, scores, 0.95) == [1, 2, 0, 3]


@pytest.mark.parametrize(("height", "width"), [(60, 90), (1, 40), (1, 1)])
def test_parts_cover_an_image(height: int, width: int) -> None:
    seen = np.zeros((3, height, width), dtype=bool)
    parameters = MaskGenerationParameters(crops_n_layers=2, crop_n_points_downscale_factor=2)
    for number, ((left, top, right, bottom), points) in enumerate(crops(parameters, height, width)):
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        assert points in (32, 16, 8)
        seen[0 if number == 0 else 1 if number < 5 else 2, top:bottom, left:right] = True
    assert seen.all() if height > 4 else seen[0].all()


def test_things_are_found_in_parts_of_an_image_too(served: Callable[..., Served]) -> None:
    model = served(MODE)
    whole = model.ask(TEXTS[1], **FEW)
    found = model.ask(TEXTS[1], **{**FEW, "crops_n_layers": 1, "crops_nms_thresh": 1.0})
    assert len(found["masks"]) >= len(whole["masks"])
    for mask in found["masks"]:
        assert read_png(mask).shape == (IMAGES[1].height, IMAGES[1].width)


@pytest.mark.parametrize("limit", ["MAX_KEPT_BYTES", "MAX_MASK_PIXELS"])
def test_masks_are_limited(
    served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(mask_generation, limit, 10)
    status, message = served(MODE).refuse(TEXTS[0], **FEW)
    assert (status, "ask for higher thresholds" in message) == (413, True)


def test_masks_of_a_large_image_are_not_computed_after_the_deadline(
    served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, clock = served(MODE), Clock()
    task: Any = model.engine.task
    resized: list[int] = []
    resize = task._resize

    def timed(masks: Any, *arguments: Any, **options: Any) -> Any:
        clock.now += 1
        resized.append(len(masks[0]))
        return resize(masks, *arguments, **options)

    monkeypatch.setattr(task, "_resize", timed)
    monkeypatch.setattr(mask_generation, "PART_VALUES", 1)
    (outcome,) = model.engine.predict([Request(TEXTS[0], FEW)], None, Deadline(4, clock))
    assert isinstance(outcome, DeadlineExceeded)
    assert resized == [1] * 5


def test_masks_may_have_as_many_pixels_as_the_limit() -> None:
    mask_generation._check_masks(5, 5, "pixels")
    with pytest.raises(RequestTooLarge):
        mask_generation._check_masks(6, 5, "pixels")
