"""The test cases of depth estimation."""

from __future__ import annotations

from tests.modes._cases import ModeCases
from tests.modes.image_classification import IMAGES, drawn_for

CASES = ModeCases(
    inputs=IMAGES,
    parameters=[{}, {"return_predicted_depth": False}],
    brief={"return_predicted_depth": False},
    rows=IMAGES,
    with_text=drawn_for,
    tensor="image",
)
