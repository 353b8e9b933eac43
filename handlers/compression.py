"""Bodies that come compressed, as the Content-Encoding header says: gzip or deflate."""

from __future__ import annotations

import zlib

from handlers.errors import BadRequest, RequestTooLarge

LONGEST = 64 * 2**20  # bytes: a small body can unpack to more than there is memory
EITHER_HEADER = 32 + zlib.MAX_WBITS
NO_HEADER = -zlib.MAX_WBITS
WINDOWS = {
    "gzip": [EITHER_HEADER],
    "x-gzip": [EITHER_HEADER],
    "deflate": [EITHER_HEADER, NO_HEADER],
}


def unpack(body: bytes | bytearray, coding: str) -> bytes | bytearray:
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
    if coding not in WINDOWS:
        raise BadRequest(f"The body's Content-Encoding is {coding}; send gzip, deflate or none.")
    for window in WINDOWS[coding]:
        try:
            return _inflate(body, window)
        except zlib.error:
            continue
    raise BadRequest(f"The body's Content-Encoding is {coding}, and its bytes are not.")


def _inflate(body: bytes | bytearray, window: int) -> bytes:
    machine = zlib.decompressobj(window)
    content = machine.decompress(body, LONGEST + 1)
    if len(content) > LONGEST:
        raise RequestTooLarge(f"The body unpacks to more than {LONGEST:,} bytes; send less.")
    if not machine.eof:
        raise zlib.error("it ends too early")
    return content
