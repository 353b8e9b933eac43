from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest

from hf_serve.handlers.errors import BadRequest, RequestTooLarge
from hf_serve.handlers.http.decoding import MAX_MEMBERS, decompress
from hf_serve.handlers.http.request import HttpRequest
from tests.sentences import Sentence, refused

TEXT = b'{"inputs": "A fine film"}'


def packed(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


PACKED = packed(TEXT)


def raw_deflate(body: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return machine.compress(body) + machine.flush()


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (TEXT, ""),
        (TEXT, "identity"),
        (PACKED, "gzip"),
        (PACKED, "x-gzip"),
        (zlib.compress(TEXT), "deflate"),
        (raw_deflate(TEXT), "deflate"),
        (packed(TEXT[:9]) + packed(b"") + packed(TEXT[9:]), "gzip"),
        (PACKED + bytes(20), "gzip"),
    ],
)
def test_a_body_is_decompressed(body: bytes, coding: str) -> None:
    assert decompress(body, coding) == TEXT


def test_a_compressed_request_is_read() -> None:
    row = {"body": bytearray(PACKED)}
    http_request = HttpRequest(
        row, {"content-type": "application/json", "content-encoding": "GZIP"}
    )
    assert http_request.content == {"inputs": "A fine film"}


@pytest.mark.parametrize(
    ("body", "coding", "facts"),
    [
        (TEXT, "br", ["Content-Encoding"]),
        (TEXT, "gzip", ["Content-Encoding"]),
        (
            PACKED[:-9],
            "gzip",
            ["Content-Encoding"],
        ),
        (TEXT, "deflate", ["Content-Encoding"]),
        (b"", "gzip", ["Content-Encoding"]),
        (PACKED + b"more", "gzip", ["Content-Encoding"]),
        (PACKED + PACKED[:9], "gzip", ["Content-Encoding"]),
        (raw_deflate(TEXT) + b"more", "deflate", ["Content-Encoding"]),
    ],
)
def test_a_body_that_cannot_be_decompressed_is_refused(
    body: bytes, coding: str, facts: list[str]
) -> None:
    with pytest.raises(BadRequest) as caught:
        decompress(body, coding)
    assert str(caught.value) == Sentence(*facts)


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (packed(bytes(5001)), "gzip"),
        (PACKED + packed(bytes(5000)), "gzip"),
        (zlib.compress(bytes(5001)), "deflate"),
        (raw_deflate(bytes(5001)), "deflate"),
        (raw_deflate(bytes(9000)), "deflate"),
    ],
)
def test_a_body_unpacks_to_no_more_than_a_request_may_have(body: bytes, coding: str) -> None:
    with refused(RequestTooLarge, 5000):
        decompress(body, coding, 5000)


@pytest.mark.parametrize("pack", [packed, zlib.compress, raw_deflate])
def test_a_body_may_unpack_to_all_that_a_request_may_have(pack: Callable[[bytes], bytes]) -> None:
    coding = "gzip" if pack is packed else "deflate"
    assert decompress(pack(bytes(5000)), coding, 5000) == bytes(5000)


def test_a_body_of_many_empty_members_is_refused() -> None:
    assert decompress(packed(b"") * MAX_MEMBERS, "gzip") == b""
    with refused(RequestTooLarge, 1000, "gzip"):
        decompress(packed(b"") * (MAX_MEMBERS + 1), "gzip")
