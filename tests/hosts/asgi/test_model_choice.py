from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest
from starlette.datastructures import Headers

from hf_serve.handlers.errors import RequestTooLarge
from hf_serve.hosts.asgi.model_choice import MAX_BYTES, MAX_VALUES, name_in_body
from tests.sentences import refused

BODY = json.dumps({"model": "film", "input": "A film."}).encode()
LATIN = '{"model": "film", "input": "Zürich"}'.encode("latin-1")
FORM = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nfilm\r\n--x--\r\n'


def name_in(body: bytes, **headers: str) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(name_in_body(body, Headers(named)))


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (BODY, {}),
        (BODY, {"content_type": "text/plain"}),
        (gzip.compress(BODY), {"content_encoding": "gzip"}),
        (gzip.compress(BODY[:5]) + gzip.compress(BODY[5:]), {"content_encoding": "x-gzip"}),
        (zlib.compress(BODY), {"content_encoding": " Deflate "}),
        (zlib.compress(BODY, wbits=-zlib.MAX_WBITS), {"content_encoding": "deflate"}),
        (BODY.decode().encode("utf-16"), {"content_type": "application/json; charset=utf-16"}),
        (LATIN, {"content_type": "application/json; charset=ISO-8859-1"}),
        (b"model=film&other=1", {"content_type": "application/x-www-form-urlencoded"}),
        (FORM, {"content_type": "Multipart/Form-Data; boundary=x"}),
    ],
)
def test_a_body_names_its_model(body: bytes, headers: dict[str, str]) -> None:
    assert name_in(body, **headers) == "film"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"no JSON", {}),
        (b'["model"]', {}),
        (b"{}", {}),
        (b'{"model": 3}', {}),
        (b"[" * 200_000, {}),
        (LATIN, {}),
        (BODY, {"content_encoding": "gzip"}),
        (zlib.compress(BODY), {"content_encoding": "br"}),
        (b"no parts", {"content_type": "multipart/form-data; boundary=x"}),
        (b"other=film", {"content_type": "application/x-www-form-urlencoded"}),
    ],
)
def test_a_body_that_cannot_be_read_or_has_no_name_names_none(
    body: bytes, headers: dict[str, str]
) -> None:
    assert name_in(body, **headers) == ""


def test_more_values_than_the_limit_are_refused() -> None:
    def body(ones: int) -> bytes:
        # With the object, its list and the key before it.
        return b'{"model": "film", "input": [%s1]}' % (b"1," * (ones - 1))

    assert name_in(body(MAX_VALUES - 2)) == "film"
    with refused(RequestTooLarge, f"{MAX_VALUES:,}"):
        name_in(body(MAX_VALUES - 1))


@pytest.mark.parametrize(("beyond", "name"), [(0, "film"), (1, "")])
def test_a_compressed_body_is_read_up_to_a_limit(beyond: int, name: str) -> None:
    body = b" " * (MAX_BYTES - len(BODY) + beyond) + BODY
    assert name_in(gzip.compress(body, 1), content_encoding="gzip") == name
    assert name_in(zlib.compress(body, 1), content_encoding="deflate") == name
