"""The test cases of embeddings of texts and images."""

from __future__ import annotations

from tests.modes._cases import FINE, LONG, ODD, ModeCases
from tests.modes.image_classification import IMAGES

CASES = ModeCases(
    inputs=[FINE, {"image": IMAGES[0]}, {"text": ODD}, {"image": IMAGES[1]}, LONG],
    parameters=[
        {},
        {"dimensions": 8, "normalize": True, "truncation_direction": "left"},
        {"precision": "ubinary", "encoding_format": "base64"},
    ],
    brief={"dimensions": 3},
    rows=[{"text": each} for each in (FINE, ODD, LONG)],
)
