"""The events of a generated text as text-generation-inference sends them.

https://huggingface.co/docs/text-generation-inference/conceptual/streaming
"""

from __future__ import annotations

from typing_extensions import TypedDict

from handlers.generation.chat import Message
from handlers.tasks.text_generation import Details


class Token(TypedDict):
    """New text, in place of a token."""

    id: None
    text: str
    logprob: None
    special: bool


class TokenEvent(TypedDict):
    """One event; the last has the whole text, and details if requested."""

    index: int
    token: Token
    generated_text: str | list[Message] | None
    details: Details | None
