"""The test cases of images to texts."""

from __future__ import annotations

from tests.modes._cases import ModeCases
from tests.modes.image_classification import IMAGES, drawn_for

CASES = ModeCases(
    inputs=IMAGES,
    parameters=[
        {"max_new_tokens": 6},
        {"max_new_tokens": 4, "num_beams": 2, "num_return_sequences": 2},
        {"max_new_tokens": 5, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    ],
    brief={"max_new_tokens": 4},
    rows=IMAGES,
    with_text=drawn_for,
    tensor="image",
    settings={"parameters": {"max_new_tokens": 8}},
    accepted=[("stop", "x" * 100), ("logit_bias", {})],
)
