"""Bytes to text: UTF-8, or the character set that a content type declares."""

from __future__ import annotations

import ast
import codecs
import json
import re
import warnings
from typing import Any

from handlers.errors import BadRequest

UTF_8 = "utf-8-sig"  # as UTF-8, but for the mark that may stand before it
CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s\";]+)")
# As Python calls them: others that it knows are no character sets, or no usual ones.
KNOWN = re.compile(r"utf-16(-le|-be)?|iso8859-\d+|cp125\d")


def charset_of(content_type: str) -> str:
    """Return what Python calls the character set of a content type in lower case, usually UTF-8.

    Raises:
        BadRequest: a character set that is not read here.
    """
    declared = CHARSET.search(content_type)
    if declared is None or declared[1] in ("utf-8", "utf8", "us-ascii"):
        return UTF_8
    try:
        name = codecs.lookup(declared[1]).name
    except (LookupError, ValueError):
        name = ""
    if not KNOWN.fullmatch(name):
        raise BadRequest(f"The body's charset {declared[1][:40]} is not known; send UTF-8.")
    return name


def text_of(value: Any, name: str = "The body", content_type: str = "") -> Any:
    """Return bytes as the text that they are; other values as they are.

    Args:
        value: what was sent.
        name: what to call it in an error.
        content_type: its type in lower case, which may declare a character set.

    Raises:
        BadRequest: they are not in that character set, or it is not read here.
    """
    if not isinstance(value, (bytes, bytearray)):
        return value
    charset = charset_of(content_type)
    try:
        return value.decode(charset)
    except UnicodeDecodeError as error:
        told = "UTF-8" if charset == UTF_8 else charset
        raise BadRequest(
            f"{name} is not {told}: byte {value[error.start]:#04x} at position {error.start}."
        ) from None


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
