"""What goes back to a client, as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"


@dataclass(frozen=True)
class HttpResponse:
    """What goes back for one row of a TorchServe batch.

    Header values are Latin-1 without line breaks: any other ends TorchServe's worker.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def encode_json(value: Any) -> bytes:
    """Return compact JSON as UTF-8; half a surrogate pair stays the escape that it came as.

    Raises:
        ValueError: a number is not finite: JSON has none such.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
