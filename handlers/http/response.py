"""The HTTP response to a row of a TorchServe batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"


@dataclass(frozen=True)
class HttpResponse:
    """The response to one row of a TorchServe batch.

    Header values are Latin-1 without line breaks: others end TorchServe's worker.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def encode_json(value: Any) -> bytes:
    """Return compact JSON as UTF-8; half of a surrogate pair stays escaped.

    Raises:
        ValueError: a number is not finite, which JSON cannot represent.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
