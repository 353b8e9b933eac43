"""The test cases of zero-shot image classification."""

from __future__ import annotations

from typing import Any

from tests.modes._cases import ModeCases
from tests.modes.image_classification import IMAGES, drawn_for

LABELS = ["film", "river", "a fox in the park"]


def with_labels(image: Any) -> Any:
    """Return inputs with an image and the labels to choose from."""
    return {"image": image, "candidate_labels": ", ".join(LABELS)}


INPUTS = [with_labels(image) for image in IMAGES]
CASES = ModeCases(
    inputs=INPUTS,
    parameters=[
        {},
        {"candidate_labels": ["music", "weather"]},
        {"candidate_labels": [*LABELS, "music"], "hypothesis_template": "A {}, seen from afar."},
    ],
    rows=INPUTS,
    with_text=lambda text: with_labels(drawn_for(text)),
    settings={"parameters": {"candidate_labels": LABELS}},
    accepted=[("candidate_labels", "x" * 100)],
)
