from __future__ import annotations

import pytest

from hf_serve.handlers.errors import BadRequest
from hf_serve.handlers.http.decoding import MAX_DEPTH, decode_text, parse_json
from hf_serve.handlers.http.request import HttpRequest
from tests.sentences import Sentence

TEXT = "Zürich – café"
NARROW = "Zürich café"


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("", "utf-8", TEXT),
        ("; charset=utf-8", "utf-8-sig", TEXT),
        ("; charset=us-ascii", "utf-8", TEXT),
        ('; charset="iso-8859-1"', "latin-1", NARROW),
        (";charset=latin1; format=flowed", "latin-1", NARROW),
        ("; charset=windows-1252", "cp1252", TEXT),
        ("; charset=utf-16", "utf-16", TEXT),
    ],
)
def test_a_text_is_read_in_the_character_set_that_it_declares(
    declared: str, encoding: str, text: str
) -> None:
    assert decode_text(text.encode(encoding), content_type=f"text/plain{declared}") == text


@pytest.mark.parametrize("charset", ["zz", "rot13", "idna", "utf-7", "unicode_escape", "\0"])
def test_an_unknown_character_set_is_refused(charset: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_text(b"a", content_type=f"text/plain; charset={charset}")
    assert str(caught.value) == Sentence(charset, "UTF-8")


@pytest.mark.parametrize(
    ("value", "charset", "facts"),
    [
        (b"a\xe9", "utf-8", ["UTF-8", "0xe9", "1"]),
        (b"\xff\xfea", "utf-16", ["utf-16", "0x61", "2"]),
    ],
)
def test_bytes_that_do_not_match_the_character_set_are_refused(
    value: bytes, charset: str, facts: list[str]
) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_text(value, content_type=f"text/plain; charset={charset}")
    assert str(caught.value) == Sentence(*facts)


def test_decoded_text_ignores_the_character_set() -> None:
    assert decode_text("a", content_type="text/plain; charset=zz") == "a"


def test_a_request_declares_its_character_set() -> None:
    http_request = HttpRequest(
        {"body": NARROW.encode("latin-1")}, {"Content-Type": "text/csv; Charset=ISO-8859-1"}
    )
    assert http_request.content == http_request.text == NARROW


# TorchServe passes a text as it reads it, in UTF-8, and describes it without its character set.
@pytest.mark.parametrize(
    ("kind", "charset", "body"),
    [
        ("text/plain", "iso-8859-1", NARROW.encode("latin-1")),
        ("text/plain", "utf-16le", NARROW.encode("utf-16le")),
        ("text/plain", "utf-16le", "film".encode("utf-16le").decode()),
        ("text/csv", "iso-8859-1", "é".encode().decode()),
        ("application/json", "iso-8859-1", b'"Z\xfcrich"'),
        ("application/json", "utf-16", '"film"'.encode("utf-16")),
    ],
)
def test_a_text_that_torchserve_describes_has_the_character_set_of_its_header(
    kind: str, charset: str, body: bytes | str
) -> None:
    headers = {"Content-Type": f"{kind}; charset={charset}", "body": {"content-type": kind}}
    sent = body.encode() if isinstance(body, str) else body
    expected = sent.decode(charset).strip('"')
    assert HttpRequest({"body": body}, headers).content == expected


def test_a_text_that_torchserve_decodes_is_unpacked_and_has_no_byte_order_mark() -> None:
    headers = {"Content-Type": "text/plain", "body": {"content-type": "text/plain"}}
    deflated = HttpRequest({"body": "KLLL\x04\x00"}, {**headers, "Content-Encoding": "deflate"})
    assert deflated.text == "aaaa"
    assert HttpRequest({"body": "\ufefffilm"}, headers).text == "film"


def test_json_that_torchserve_has_read_is_not_read_again() -> None:
    kind = "application/json"
    headers = {"Content-Type": f"{kind}; charset=utf-8", "body": {"content-type": kind}}
    assert HttpRequest({"body": '{"a text": 1}'}, headers).content == '{"a text": 1}'


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_is_nested_as_deep_as_the_limit(opening: str) -> None:
    def nested(depth: int) -> str:
        return opening * depth + "1" + ("]" if opening == "[" else "}") * depth

    assert parse_json(nested(MAX_DEPTH), max_values=1000)
    with pytest.raises(BadRequest):
        parse_json(nested(MAX_DEPTH + 1), max_values=1000)
