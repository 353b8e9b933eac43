"""Bodies that come compressed, as the Content-Encoding header says: gzip or deflate."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from io import BytesIO

from handlers.errors import BadRequest, RequestTooLarge

LONGEST = 64 * 2**20  # bytes: a small body can unpack to more than there is memory
NO_HEADER = -zlib.MAX_WBITS
NOT_SO = (zlib.error, gzip.BadGzipFile, EOFError)
Bytes = bytes | bytearray


def unpack(body: Bytes, coding: str) -> Bytes:
    """Return a body as it was before it was compressed.

    Args:
        body: what was sent.
        coding: the Content-Encoding header in lower case; empty where there is none.

    Raises:
        BadRequest: another coding, or bytes that are not in it.
        RequestTooLarge: it unpacks to more than any request may hold.
    """
    if coding in ("", "identity"):
        return body
    if coding not in UNPACKERS:
        raise BadRequest(f"The body's Content-Encoding is {coding}; send gzip, deflate or none.")
    for unpacker in UNPACKERS[coding]:
        try:
            content = unpacker(body)
        except NOT_SO:
            continue
        if len(content) > LONGEST:
            raise RequestTooLarge(f"The body unpacks to more than {LONGEST:,} bytes; send less.")
        return content
    raise BadRequest(f"The body's Content-Encoding is {coding}, and its bytes are not.")


def _gunzip(body: Bytes) -> bytes:
    """Return what all members of a body unpack to, end to end."""
    if not body:
        raise EOFError
    with gzip.GzipFile(fileobj=BytesIO(body)) as members:
        return members.read(LONGEST + 1)


def _inflate(body: Bytes, window: int = zlib.MAX_WBITS) -> bytes:
    machine = zlib.decompressobj(window)
    content = machine.decompress(body, LONGEST + 1)
    ended = machine.eof and not machine.unused_data
    if not ended and len(content) <= LONGEST:
        raise zlib.error("it ends too early, or something else is behind it")
    return content


def _inflate_bare(body: Bytes) -> bytes:
    return _inflate(body, NO_HEADER)


UNPACKERS: dict[str, list[Callable[[Bytes], bytes]]] = {
    "gzip": [_gunzip],
    "x-gzip": [_gunzip],
    "deflate": [_inflate, _inflate_bare],
}
