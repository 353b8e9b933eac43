"""The test cases of object detection."""

from __future__ import annotations

from tests.modes._cases import ModeCases
from tests.modes.image_classification import IMAGES, drawn_for

CASES = ModeCases(
    inputs=IMAGES,
    parameters=[{}, {"threshold": 0.1}, {"threshold": 0.0}],
    brief={"threshold": 0.0},
    labels=("circle", "square", "triangle"),
    rows=IMAGES,
    with_text=drawn_for,
    tensor="image",
)
