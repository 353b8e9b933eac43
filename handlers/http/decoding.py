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
from encodings import normalize_encoding
from encodings.aliases import aliases
from functools import partial
from io import BytesIO
from typing import Any

from ..config.messages import shorten
from ..errors import BadRequest, RequestTooLarge
from .limits import MIN_VALUES, TORCHSERVE_BYTES

NO_HEADER = -zlib.MAX_WBITS
GZIP_MEMBER = b"\x1f\x8b\x08"
MAX_MEMBERS = 1_000
NOT_COMPRESSED = (zlib.error, gzip.BadGzipFile, EOFError)
Bytes = bytes | bytearray

UTF_8 = "utf-8-sig"  # UTF-8 with or without a byte order mark
LOOKS_LIKE_OBJECT = re.compile(r"\s*\{\s*(['\"]|\})")
MAX_DEPTH = 64
# One text, or one bracket, in JSON or in what only looks like it.
JSON_TOKEN = re.compile(
    r'[^"\[\]{}]*+(?:(?P<text>"(?:[^"\\]++|\\.?)*+"?)|(?P<start>[\[{])|(?P<end>[\]}])|\Z)',
    re.DOTALL,
)
STEPS: dict[str | None, int] = {"start": 1, "end": -1}
MAX_LITERAL = 100_000
# The characters of a literal outside of its texts, each of which can cost hundreds of bytes.
MAX_LITERAL_STRUCTURE = 1_000
LITERAL_TEXT = re.compile(
    r"""(?P<code>'{3}|"{3}|(?i:fr?|rf)['"])|'(?:[^'\\\r\n]++|\\.)*+'?|"(?:[^"\\\r\n]++|\\.)*+"?"""
)
CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s\";]+)")
# By their names in Python, which also knows codecs that are not character sets. No other name is
# looked up, since Python remembers each one that it does not know.
CHARSETS = re.compile(r"latin_1|utf_16(_le|_be)?|iso8859_([2-9]|1[013456])|cp125[0-8]")


def charset_of(content_type: str) -> str:
    """Return Python's name of the character set of a content type, by default UTF-8.

    Raises:
        BadRequest: the character set is not supported.
    """
    declared = CHARSET.search(content_type)
    if declared is None or declared[1] in ("utf-8", "utf8", "us-ascii"):
        return UTF_8
    name = normalize_encoding(declared[1])
    name = aliases.get(name, name)
    if not CHARSETS.fullmatch(name):
        raise BadRequest(f"The body's charset {shorten(declared[1])} is not known; send UTF-8.")
    return codecs.lookup(name).name


def decode_text(value: Any, name: str = "The body", content_type: str = "") -> Any:
    """Return the text of bytes; other values as they are.

    Args:
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


def is_utf8(value: bytes | bytearray) -> bool:
    """Return whether bytes are a text in UTF-8: the bytes of images and sound are not."""
    try:
        value.decode(UTF_8)
    except UnicodeDecodeError:
        return False
    return True


def value_or_text(text: str, name: str = "The body", max_values: int = MIN_VALUES) -> Any:
    """Return the value of a text that looks like JSON or a Python literal; else the text.

    Raises:
        BadRequest: it looks like an object and cannot be parsed.
        RequestTooLarge: it has more values than allowed.
    """
    if LOOKS_LIKE_OBJECT.match(text):
        return _parse_object(text, name, max_values)
    if text.lstrip().startswith("["):
        try:
            return parse_json(text, name, max_values)
        except BadRequest:
            return text
    return text


def parse_json(text: str, name: str = "The body", max_values: int = MIN_VALUES) -> Any:
    """Return the value of a text in JSON.

    Raises:
        BadRequest: it is not JSON, or nested too deep; the text says where, under the given name.
        RequestTooLarge: it has more values than allowed.
    """
    check_json_size(text, name, max_values)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"{name} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{name} is not JSON that can be read: {type(error).__name__}.") from None


def check_json_size(text: str, name: str, max_values: int, counted: int = 0) -> int:
    """Count the values of a text in JSON, without building them.

    Numbers are not counted: they take little more memory than their digits.

    Args:
        counted: the number before the text.

    Returns:
        The number after the text.

    Raises:
        BadRequest: it is nested too deep.
        RequestTooLarge: it has more texts, lists and objects than allowed.
    """
    count, depth = counted, 0
    for token in JSON_TOKEN.finditer(text):
        kind = token.lastgroup
        depth += STEPS.get(kind, 0)
        count += kind in ("text", "start")
        if depth > MAX_DEPTH:
            raise BadRequest(f"{name} is nested more than {MAX_DEPTH} deep; send it flatter.")
        if count > max_values:
            raise RequestTooLarge(
                f"{name} has more than {max_values:,} texts, lists and objects; send it in parts."
            )
    return count


def _parse_object(text: str, name: str, max_values: int) -> Any:
    """Return the value of JSON, or of a Python literal, as in the old example's sample files."""
    try:
        return parse_json(text, name, max_values)
    except BadRequest:
        literal = parse_literal(text)
        if not isinstance(literal, dict):
            raise
        return literal


def parse_literal(text: str) -> Any:
    """Return the value of a Python literal; None where it is not one, or too long."""
    if len(text) > MAX_LITERAL or not _is_simple(text):
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # warnings would quote the text in the log
            return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _is_simple(text: str) -> bool:
    """Return whether a literal has few characters outside of texts of one line."""
    texts = list(LITERAL_TEXT.finditer(text))
    structure = len(text) - sum(found.end() - found.start() - 1 for found in texts)
    hides_code = any(found["code"] for found in texts) or re.search(r"\\[\r\n]", text)
    return structure <= MAX_LITERAL_STRUCTURE and not hides_code


def decompress(body: Bytes, coding: str, max_bytes: int = TORCHSERVE_BYTES) -> Bytes:
    """Return a body without its compression.

    Args:
        coding: the Content-Encoding header in lower case; empty where it is missing.

    Raises:
        BadRequest: another coding, or bytes that are not in it.
        RequestTooLarge: it decompresses to more than a request may have.
    """
    if coding in ("", "identity"):
        return body
    if coding not in DECODERS:
        raise BadRequest(
            f"The body's Content-Encoding is {shorten(coding)}; send gzip, deflate or none."
        )
    for decoder in DECODERS[coding]:
        try:
            content = decoder(body, max_bytes + 1)
        except NOT_COMPRESSED:
            continue
        if len(content) > max_bytes:
            raise RequestTooLarge(f"The body unpacks to more than {max_bytes:,} bytes; send less.")
        return content
    raise BadRequest(f"The body's Content-Encoding is {coding}, and its bytes are not.")


def _gunzip(body: Bytes, size: int) -> bytes:
    """Return the decompressed members of a body, concatenated, up to a number of bytes."""
    if not body:
        raise EOFError
    if body.count(GZIP_MEMBER) > MAX_MEMBERS:
        raise RequestTooLarge(f"The body has more than {MAX_MEMBERS:,} gzip members; send one.")
    with gzip.GzipFile(fileobj=BytesIO(body)) as members:
        return members.read(size)


def _inflate(body: Bytes, size: int, window: int = zlib.MAX_WBITS) -> bytes:
    decompressor = zlib.decompressobj(window)
    content = decompressor.decompress(body, size)
    ended = decompressor.eof and not decompressor.unused_data
    if not ended and len(content) < size:
        raise zlib.error("it ends too early, or other bytes follow it")
    return content


DECODERS: dict[str, list[Callable[[Bytes, int], bytes]]] = {
    "gzip": [_gunzip],
    "x-gzip": [_gunzip],
    "deflate": [_inflate, partial(_inflate, window=NO_HEADER)],
}
