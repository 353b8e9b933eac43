"""The test cases of images and texts to texts."""

from __future__ import annotations

from typing import Any

from tests.modes._cases import FINE, ODD, ModeCases
from tests.modes.image_classification import IMAGES
from tests.tiny_multimodal import write_llava


def chat_about(image: str, text: str) -> list[dict[str, Any]]:
    """Return a chat with an image, as OpenAI's clients send it."""
    url = {"url": f"data:image/png;base64,{image}"}
    parts = [{"type": "image_url", "image_url": url}, {"type": "text", "text": text}]
    return [{"role": "user", "content": parts}]


CASES = ModeCases(
    inputs=[
        {"image": IMAGES[0], "text": FINE},
        chat_about(IMAGES[1], ODD),
        chat_about(IMAGES[2], FINE),
        "Once upon a time",
    ],
    parameters=[
        {"max_new_tokens": 4},
        {"max_new_tokens": 9, "stop": ["e"]},
        {"do_sample": True, "seed": 7, "max_new_tokens": 6},
        {"num_beams": 2, "max_new_tokens": 5},
    ],
    brief={"max_new_tokens": 4},
    rows=["Once upon a time", FINE],
    tensor="text",
    settings={"parameters": {"max_new_tokens": 4}},
    accepted=[("stop", "x" * 100), ("logit_bias", {}), ("chat_template_kwargs", {})],
    write=write_llava,
)
