"""One request on which an exported model is calibrated and measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from handlers.requests import Request


@dataclass(frozen=True)
class Sample(Request):
    """A request that stands in a file; `place` says where, and what it holds stays untold."""

    place: str = field(default="", repr=False, compare=False)


def place_of(request: Request) -> str:
    """Return where a request stands, for errors."""
    return request.place if isinstance(request, Sample) else "a row of handler.calibration"
