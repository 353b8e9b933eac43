"""The HTTP response to a row of a TorchServe batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from ..config.messages import shorten
from ..errors import RequestError

JSON = "application/json"
MAX_HEADER = 300
# Statuses that say that the handler failed, and not that the request is wrong.
FAILURES = (500, 507)


@dataclass(frozen=True)
class HttpResponse:
    """The response to one row of a TorchServe batch.

    Header values become printable ASCII of at most 300 characters: long ones, line breaks and what
    is not Latin-1 end TorchServe's worker.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.headers:
            return
        values = {name: _header_value(value) for name, value in self.headers.items()}
        object.__setattr__(self, "headers", values)


def encode_json(value: Any) -> bytes:
    """Return compact JSON as UTF-8; half of a surrogate pair stays escaped.

    Raises:
        ValueError: a number is not finite, which JSON cannot represent.
    """
    try:
        encoded = to_json(value)  # ten times as fast as `json` for a vector
    except PydanticSerializationError:
        return _encode_slowly(value)
    # The names of numbers that are not finite, or words of a text: only the slow encoder knows.
    return _encode_slowly(value) if b"NaN" in encoded or b"Infinity" in encoded else encoded


def error_response(error: RequestError) -> HttpResponse:
    """Return the response that is one error, in the shapes that clients of any protocol read."""
    body = encode_json(error.whole_body())
    return HttpResponse(body, error.status, headers=dict(error.headers))


def has_failed(response: HttpResponse) -> bool:
    """Return whether a response says that the handler failed, and not that the request is wrong."""
    return response.status in FAILURES


def _encode_slowly(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def _header_value(text: str) -> str:
    plain = shorten(text.replace("…", "..."), MAX_HEADER)
    return "".join(letter if " " <= letter <= "~" else "?" for letter in plain)
