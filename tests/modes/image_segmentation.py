"""The test cases of image segmentation."""

from __future__ import annotations

from tests.modes._cases import ModeCases
from tests.modes.image_classification import IMAGES, drawn_for

CASES = ModeCases(
    inputs=IMAGES,
    parameters=[{}, {"subtask": "semantic"}],
    brief={"subtask": "semantic"},
    labels=("circle", "square", "triangle"),
    rows=IMAGES,
    with_text=drawn_for,
    tensor="image",
)
