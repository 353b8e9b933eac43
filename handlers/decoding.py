"""Bytes to text: UTF-8, or the character set that a content type declares."""

from __future__ import annotations

import codecs
import re
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
