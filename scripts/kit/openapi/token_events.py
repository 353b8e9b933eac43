"""The events of a generated text as text-generation-inference sends them.

https://huggingface.co/docs/text-generation-inference/conceptual/streaming
"""

from __future__ import annotations

from typing_extensions import TypedDict

from handlers.generation.chat import Message
from handlers.tasks.text_generation import Details


class Token(TypedDict):
    """New text; what it is made of is not told."""

    id: None
    text: str
    logprob: None
    special: bool


class TokenEvent(TypedDict):
    """One event; the last has the whole answer, and details where they were asked for."""

    index: int
    token: Token
    generated_text: str | list[Message] | None
    details: Details | None
