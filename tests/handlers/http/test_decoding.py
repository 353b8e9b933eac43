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


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_is_nested_as_deep_as_the_limit(opening: str) -> None:
    def nested(depth: int) -> str:
        return opening * depth + "1" + ("]" if opening == "[" else "}") * depth

    assert parse_json(nested(MAX_DEPTH), max_values=1000)
    with pytest.raises(BadRequest):
        parse_json(nested(MAX_DEPTH + 1), max_values=1000)
