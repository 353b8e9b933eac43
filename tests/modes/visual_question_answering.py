"""The test cases of visual question answering."""

from __future__ import annotations

from typing import Any

from tests.modes._cases import FINE, ODD, ModeCases
from tests.modes.image_classification import IMAGES
from tests.tiny_multimodal import write_vilt


def with_question(text: Any) -> Any:
    """Return an image with a question."""
    return {"image": IMAGES[0], "question": text}


INPUTS = [
    with_question(FINE),
    with_question(ODD),
    {"image": IMAGES[1], "question": "Who sings?"},
    {"image": IMAGES[2], "question": "Who sings?"},
]
CASES = ModeCases(
    inputs=INPUTS,
    parameters=[{}, {"top_k": 100}],
    brief={"top_k": 2},
    with_text=with_question,
    text_name="question",
    rows=INPUTS,
    write=write_vilt,
)
