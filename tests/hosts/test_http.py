"""Bodies as rows of TorchServe: forms pass the bytes of their fields as TorchServe does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hf_serve.handlers.errors import BadRequest
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.hosts.http import MAX_FIELDS, to_row
from tests.sentences import refused

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=x"


def part(name: str, value: bytes) -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (
        name.encode(),
        value,
    )


def row(body: bytes, content_type: str) -> dict[str, Any]:
    return asyncio.run(to_row(body, content_type))[0]


@pytest.mark.parametrize(
    "value", [b"a film", "Zürich 🎉".encode(), b"caf\xe9", b"\xff", b"", b"a\x00b"]
)
def test_a_field_has_the_bytes_that_were_sent(value: bytes) -> None:
    escaped = b"".join(b"%%%02x" % byte for byte in value)
    assert row(b"inputs=" + escaped, FORM) == {"inputs": value}
    assert row(b"inputs=" + value.replace(b" ", b"+"), FORM) == {"inputs": value}
    assert row(part("inputs", value) + b"--x--\r\n", MULTIPART) == {"inputs": value}


@pytest.mark.parametrize(
    "declared", ["", "; charset=utf-8", "; charset=iso-8859-1", "; charset=zz"]
)
def test_the_character_set_of_a_form_changes_no_bytes(declared: str) -> None:
    body = part("inputs", "Zürich".encode()) + b"--x--\r\n"
    assert row(body, MULTIPART + declared) == {"inputs": "Zürich".encode()}


def test_names_are_read_in_utf_8() -> None:
    assert row("Stadt=a&größe=b".encode(), FORM) == {"Stadt": b"a", "größe": b"b"}
    assert row(part("größe", b"b") + b"--x--\r\n", MULTIPART) == {"größe": b"b"}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"inputs=caf%e9", FORM), (part("inputs", b"caf\xe9") + b"--x--\r\n", MULTIPART)],
)
def test_a_field_that_is_not_utf_8_is_refused_by_its_name(body: bytes, content_type: str) -> None:
    with refused(BadRequest, "inputs", "UTF-8", "0xe9", "3"):
        _ = HttpRequest(row(body, content_type), {"Content-Type": content_type}).content


def test_a_form_of_too_many_fields_is_refused() -> None:
    with refused(BadRequest, f"{MAX_FIELDS}"):
        row(b"a=b&" * (MAX_FIELDS + 1), FORM)
