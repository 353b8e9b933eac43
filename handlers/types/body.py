"""Whole bodies of requests and responses, for models whose own code reads and writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RequestBody:
    """The body of a request, and what its client accepts.

    Attributes:
        content: its text, or its bytes where its content type is no text.
        content_type: its content type without parameters.
        accept: the Accept header.
        decode: returns its content as Hugging Face's containers decode it: JSON as an object, other
            types as an object with `inputs`.
    """

    content: str | bytes
    content_type: str
    accept: str
    decode: Callable[[], Any]


@dataclass(frozen=True)
class ResponseBody:
    """The body of a response."""

    content: bytes
    content_type: str
