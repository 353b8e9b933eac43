"""Responses in parts: formats, and what is sent of a text before it is complete."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.http.streams import (
    SERVER_SENT_EVENTS,
    HttpTextStream,
    Stream,
    event,
    json_line,
)
from hf_serve.handlers.types.request import GeneratedToken

JSON_LINES = Stream("application/x-ndjson", json_line)


@pytest.mark.parametrize(
    ("stream", "content_type", "expected"),
    [
        (SERVER_SENT_EVENTS, "text/event-stream", 'data: {"text":"é\\n"}\n\n'),
        (JSON_LINES, "application/x-ndjson", '{"text":"é\\n"}\n'),
    ],
)
def test_a_part_is_encoded_in_the_format_of_its_stream(
    stream: Stream, content_type: str, expected: str
) -> None:
    response = stream.response(stream.encode({"text": "é\n"}))
    assert response.content_type == content_type
    assert response.body.decode() == expected


def test_an_event_may_have_a_name() -> None:
    assert event(5, "step") == b"event: step\ndata: 5\n\n"


class Lines(HttpTextStream):
    stream = JSON_LINES

    def part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        return self.stream.encode({"text": text})


def test_new_text_is_sent_in_the_format_of_its_stream_with_the_headers_of_the_response() -> None:
    sent: list[HttpResponse] = []
    http_request = HttpRequest({}, {}, sent.append, response_headers={"X-Unknown-Keys": "a"})
    lines = Lines(http_request)
    assert not lines.has_begun
    for text in ("Once", "Once upon", "Other"):
        lines.emit(text)
    assert [each.body for each in sent] == [
        b'{"text":"Once"}\n',
        b'{"text":" upon"}\n',
    ]
    assert {each.content_type for each in sent} == {"application/x-ndjson"}
    assert sent[0].headers == {"X-Unknown-Keys": "a"}
    assert lines.has_begun


def test_nothing_is_sent_where_a_response_has_no_parts() -> None:
    lines = Lines(HttpRequest({}, {}))
    lines.emit("Once")
    assert not lines.has_begun
