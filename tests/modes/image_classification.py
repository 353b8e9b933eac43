"""The test cases of image classification."""

from __future__ import annotations

from random import Random
from typing import Any

from hf_serve.demo_models.synthetic_images import as_base64, draw
from tests.modes._cases import ModeCases


def drawn_for(text: Any) -> str:
    """Return an image that depends on a text."""
    return as_base64(draw(Random(str(text))).image)


IMAGES = [drawn_for(number) for number in range(4)]
CASES = ModeCases(
    inputs=IMAGES,
    parameters=[{}, {"top_k": None}, {"function_to_apply": "sigmoid"}],
    brief={"top_k": 2},
    labels=("circle", "square", "triangle"),
    rows=IMAGES,
    with_text=drawn_for,
    tensor="image",
)
