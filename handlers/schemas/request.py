"""One question to the model, free of any wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handlers.schemas.text_stream import TextStream


@dataclass(frozen=True)
class Request:
    """What is asked.

    `alone` is False for an item of a list: transformers pipelines answer some items in a list
    with another shape than the same item sent by itself. `listener` hears a generated text while it
    is made.
    """

    inputs: Any
    parameters: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = True
    stream: TextStream | None = None


@dataclass(frozen=True)
class Sample(Request):
    """A request that stands in a file; `place` says where, and what it holds stays untold."""

    place: str = field(default="", repr=False, compare=False)


def place_of(request: Request) -> str:
    """Return where a request stands, for errors."""
    return request.place if isinstance(request, Sample) else "a row of handler.calibration"
