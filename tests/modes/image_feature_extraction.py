"""The test cases of image feature extraction."""

from __future__ import annotations

from tests.modes._cases import ModeCases
from tests.modes.image_classification import IMAGES, drawn_for

CASES = ModeCases(
    inputs=IMAGES,
    parameters=[{}, {"pool": True}],
    brief={"pool": True},
    rows=IMAGES,
    with_text=drawn_for,
    tensor="image",
)
