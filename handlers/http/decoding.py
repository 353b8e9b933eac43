"""The bytes of a body to its content: decompression, character sets, and JSON."""

from __future__ import annotations

import ast
import codecs
import gzip
import json
import re
import warnings
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

from handlers.errors import BadRequest, RequestTooLarge

MAX_BYTES = 64 * 2**20  # a small body can decompress to more than there is memory
NO_HEADER = -zlib.MAX_WBITS
NOT_COMPRESSED = (zlib.error, gzip.BadGzipFile, EOFError)
Bytes = bytes | bytearray

UTF_8 = "utf-8-sig"  # UTF-8 with or without a byte order mark
LOOKS_LIKE_OBJECT = re.compile(r"\s*\{\s*(['\"]|\})")
MAX_LITERAL = 100_000
CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s\";]+)")
# By their names in Python, which also knows codecs that are not character sets.
CHARSETS = re.compile(r"utf-16(-le|-be)?|iso8859-\d+|cp125\d")


def charset_of(content_type: str) -> str:
    """Return Python's name of the character set of a content type, by default UTF-8.

    Raises:
        BadRequest: the character set is not supported.
    """
    declared = CHARSET.search(content_type)
    if declared is None or declared[1] in ("utf-8", "utf8", "us-ascii"):
        return UTF_8
    try:
        name = codecs.lookup(declared[1]).name
    except (LookupError, ValueError):
        name = ""
    if not CHARSETS.fullmatch(name):
        raise BadRequest(f"The body's charset {declared[1][:40]} is not known; send UTF-8.")
    return name


def decode_text(value: Any, name: str = "The body", content_type: str = "") -> Any:
    """Return the text of bytes; other values as they are.

    Args:
        value: the value in the request.
        name: its name in an error.
        content_type: its type in lower case, which may declare a character set.

    Raises:
        BadRequest: they are not in that character set, or it is not supported.
    """
    if not isinstance(value, (bytes, bytearray)):
        return value
    charset = charset_of(content_type)
    try:
        return value.decode(charset)
    except UnicodeDecodeError as error:
        shown = "UTF-8" if charset == UTF_8 else charset
        raise BadRequest(
            f"{name} is not {shown}: byte {value[error.start]:#04x} at position {error.start}."
        ) from None


def value_or_text(text: str, name: str = "The body") -> Any:
    """Return the value of a text that looks like JSON or a Python literal; else the text.

    Raises:
        BadRequest: it looks like an object and cannot be parsed.
    """
    if LOOKS_LIKE_OBJECT.match(text):
        return _parse_object(text, name)
    if text.lstrip().startswith("["):
        try:
            return parse_json(text, name)
        except BadRequest:
            return text
    return text


def parse_json(text: str, name: str = "The body") -> Any:
    """Return the value of a text in JSON.

    Raises:
        BadRequest: it is not JSON; the text says where, under the given name.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"{name} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{name} is not JSON that can be read: {type(error).__name__}.") from None


def _parse_object(text: str, name: str) -> Any:
    """Return the value of JSON, or of a Python literal, as in the old example's sample files."""
    try:
        return parse_json(text, name)
    except BadRequest:
        literal = parse_literal(text)
        if not isinstance(literal, dict):
            raise
        return literal


def parse_literal(text: str) -> Any:
    """Return the value of a Python literal; None where it is not one, or too long."""
    if len(text) > MAX_LITERAL:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # warnings would quote the text in the log
            return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def decompress(body: Bytes, coding: str) -> Bytes:
    """Return a body without its compression.

    Args:
        body: the bytes of the request.
        coding: the Content-Encoding header in lower case; empty where it is missing.

    Raises:
        BadRequest: another coding, or bytes that are not in it.
        RequestTooLarge: it decompresses to more than a request may have.
    """
    if coding in ("", "identity"):
        return body
    if coding not in DECODERS:
        raise BadRequest(f"The body's Content-Encoding is {coding}; send gzip, deflate or none.")
    for decoder in DECODERS[coding]:
        try:
            content = decoder(body)
        except NOT_COMPRESSED:
            continue
        if len(content) > MAX_BYTES:
            raise RequestTooLarge(f"The body unpacks to more than {MAX_BYTES:,} bytes; send less.")
        return content
    raise BadRequest(f"The body's Content-Encoding is {coding}, and its bytes are not.")


def _gunzip(body: Bytes) -> bytes:
    """Return the decompressed members of a body, concatenated."""
    if not body:
        raise EOFError
    with gzip.GzipFile(fileobj=BytesIO(body)) as members:
        return members.read(MAX_BYTES + 1)


def _inflate(body: Bytes, window: int = zlib.MAX_WBITS) -> bytes:
    decompressor = zlib.decompressobj(window)
    content = decompressor.decompress(body, MAX_BYTES + 1)
    ended = decompressor.eof and not decompressor.unused_data
    if not ended and len(content) <= MAX_BYTES:
        raise zlib.error("it ends too early, or other bytes follow it")
    return content


def _inflate_bare(body: Bytes) -> bytes:
    return _inflate(body, NO_HEADER)


DECODERS: dict[str, list[Callable[[Bytes], bytes]]] = {
    "gzip": [_gunzip],
    "x-gzip": [_gunzip],
    "deflate": [_inflate, _inflate_bare],
}
