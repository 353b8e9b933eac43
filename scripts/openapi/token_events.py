"""The events of a generated text as text-generation-inference sends them.

https://huggingface.co/docs/text-generation-inference/conceptual/streaming
"""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from handlers.generation.chat import Message
from handlers.schemas.request import TextToken
from handlers.tasks._generation import Details


class Token(TypedDict):
    """A token, or new text in place of one."""

    id: int | None
    text: str
    logprob: float | None
    special: bool
    bytes: NotRequired[list[int]]


class TokenEvent(TypedDict):
    """One event; the last has the whole text, and details if requested."""

    index: int
    token: Token
    top_tokens: NotRequired[list[TextToken]]
    generated_text: str | list[Message] | None
    details: Details | None
