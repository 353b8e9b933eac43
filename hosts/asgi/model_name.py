"""The key `model` of a body, which names the model of a request to OpenAI's and other addresses."""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import Headers

from hf_serve.handlers.errors import RequestError, RequestTooLarge
from hf_serve.handlers.http.decoding import decode_text, decompress
from hf_serve.hosts.http import FORM, MULTIPART, to_row

# More values of JSON would take more memory than their text.
MAX_VALUES = 1_000_000
MAX_BYTES = 64 << 20


async def name_in_body(body: bytes, headers: Headers) -> str:
    """Return the name; empty where a body has none, or cannot be read: the model refuses it then.

    Raises:
        RequestTooLarge: it has too many values.
    """
    content_type = headers.get("content-type", "").lower()
    if content_type.startswith((FORM, MULTIPART)):
        return await _name_in_form(body, headers["content-type"])
    try:
        coding = headers.get("content-encoding", "").strip().lower()
        text = decode_text(decompress(body, coding, MAX_BYTES), content_type=content_type)
    except RequestError:
        return ""
    if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES:
        raise RequestTooLarge(
            f"The body has more than {MAX_VALUES:,} values; send the request in parts."
        )
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return _text(content.get("model")) if isinstance(content, dict) else ""


async def _name_in_form(body: bytes, content_type: str) -> str:
    try:
        row, _ = await to_row(body, content_type)
    except RequestError:
        return ""
    return _text(row.get("model"))


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
