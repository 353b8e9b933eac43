"""What a client posted, taken out of a TorchServe row and decoded, whatever its wire format."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handlers.errors import BadRequest

LOOKS_LIKE_OBJECT = re.compile(r"\s*\{\s*(['\"]|\})")
LONGEST_LITERAL = 100_000
JSON = "application/json"


@dataclass(frozen=True)
class Post:
    """One row of a TorchServe batch: its fields, and its headers as the client spelled them."""

    row: Mapping[str, Any]
    headers: Mapping[str, Any]

    @property
    def explains(self) -> bool:
        """Whether it came to `/explanations`."""
        return self.headers.get("explain") == "True"

    def header(self, name: str) -> str:
        """Return an HTTP header whatever its case; empty when there is none."""
        found = (str(value) for key, value in self.headers.items() if key.lower() == name.lower())
        return next(found, "")


def read_content(post: Post) -> Any:
    """Return a post's content: JSON values, a text, or the fields of a form.

    A body without a type, as `curl -T` sends it, is JSON when it looks like an object, else text.

    Raises:
        BadRequest: no body, not UTF-8, or broken JSON.
    """
    for name in ("body", "data"):
        if name in post.row:
            return _decode(post.row[name], _content_type(post, name))
    if not post.row:
        raise BadRequest(
            "The request has no body; send JSON with -H 'Content-Type: application/json' "
            "or a file with -T."
        )
    return {name: _text(value) for name, value in post.row.items()}


def _decode(value: Any, content_type: str) -> Any:
    if not isinstance(value, (str, bytes, bytearray)):
        return value
    text = _text(value)
    if not text.strip():
        raise BadRequest("The body is empty; send a text or JSON.")
    if content_type == JSON and isinstance(value, str):
        return value  # TorchServe has read this type already: the JSON was a text
    if content_type.split(";", maxsplit=1)[0].strip().endswith("json"):
        return _json(text)
    if LOOKS_LIKE_OBJECT.match(text):
        return _object(text)
    return _list_or_text(text)


def _content_type(post: Post, name: str) -> str:
    described = post.headers.get(name)
    if isinstance(described, Mapping) and described.get("content-type"):
        return str(described["content-type"]).lower()
    return post.header("content-type").lower()


def _text(value: Any) -> Any:
    if not isinstance(value, (bytes, bytearray)):
        return value
    try:
        return value.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"The body is not UTF-8: byte {value[error.start]:#04x} at position {error.start}."
        ) from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(
            f"The body is not JSON that can be read: {type(error).__name__}."
        ) from None


def _object(text: str) -> Any:
    """Read JSON, or the Python literal that the old example's sample files are."""
    try:
        return _json(text)
    except BadRequest:
        literal = _literal(text) if len(text) <= LONGEST_LITERAL else None
        if literal is None:
            raise
        return literal


def _literal(text: str) -> dict[Any, Any] | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # they would quote the text in the log
            value = ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, dict) else None


def _list_or_text(text: str) -> Any:
    if text.lstrip().startswith("["):
        try:
            return _json(text)
        except BadRequest:
            return text
    return text
