"""What a text says: JSON, the literal of an object as Python writes it, or just itself."""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any

from handlers.errors import BadRequest

LOOKS_LIKE_OBJECT = re.compile(r"\s*\{\s*(['\"]|\})")
LONGEST_LITERAL = 100_000


def value_or_text(text: str, name: str = "The body") -> Any:
    """Return the JSON, or the Python literal of an object, that a text looks like; else itself.

    Raises:
        BadRequest: it looks like an object, and is none.
    """
    if LOOKS_LIKE_OBJECT.match(text):
        return _object(text, name)
    if text.lstrip().startswith("["):
        try:
            return json_of(text, name)
        except BadRequest:
            return text
    return text


def json_of(text: str, name: str = "The body") -> Any:
    """Return the value that a text is in JSON, or say where it is none, under the given name."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"{name} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{name} is not JSON that can be read: {type(error).__name__}.") from None


def _object(text: str, name: str) -> Any:
    """Read JSON, or the Python literal that the old example's sample files are."""
    try:
        return json_of(text, name)
    except BadRequest:
        literal = literal_of(text)
        if not isinstance(literal, dict):
            raise
        return literal


def literal_of(text: str) -> Any:
    """Return the value of a Python literal; None where it is none, or too long for one."""
    if len(text) > LONGEST_LITERAL:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # they would quote the text in the log
            return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
