"""The form for a browser: what it has in it is answered, and explained, as it is sent."""

from __future__ import annotations

import base64
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.http.html import HTML
from hf_serve.handlers.http.request import HttpRequest, distinct_names
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from tests.modes import each_mode
from tests.serving import Served, read_json

# What browsers send.
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
HOSTILE = '"><script>alert(1)</script>'


class Form(HTMLParser):
    """The fields of a form, and the value of its button that explains."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.fields: list[tuple[str, Any]] = []
        self.explain = ""
        self._in_field = False
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_field = tag == "textarea"
        if tag == "button":
            self.explain = given.get("value", self.explain)
        elif given.get("type") == "file":
            self.fields.append((given["name"], b""))
        elif tag in ("input", "textarea"):
            self.fields.append((given["name"], given.get("value", "")))

    def handle_data(self, data: str) -> None:
        if self._in_field:
            name, value = self.fields[-1]
            self.fields[-1] = name, value + data

    def handle_endtag(self, tag: str) -> None:
        self._in_field = False


def send(model: Served, row: dict[str, Any]) -> HttpResponse:
    http_request = HttpRequest(row, {"Accept": ACCEPT})
    (response,) = model.dispatcher.dispatch([http_request], Meter())
    return response


def filled_in(form: Form, example: Any) -> dict[str, Any]:
    """Return the fields as TorchServe passes them, with the example's file where one is chosen."""
    file = example["image"] if isinstance(example, dict) and "image" in example else example
    names = distinct_names(name for name, _ in form.fields)
    values = (base64.b64decode(file) if value == b"" else value for _, value in form.fields)
    return dict(zip(names, values, strict=True))


@pytest.mark.parametrize("mode", each_mode(also=("table_question_answering", "late_interaction")))
def test_the_form_of_a_mode_is_answered_and_explained(
    served: Callable[..., Served], mode: str
) -> None:
    model = served(mode)
    shown = send(model, {"body": b""})
    assert (shown.status, shown.content_type) == (200, HTML)
    form = Form(shown.body)
    row = filled_in(form, model.engine.task.description.wire.example["inputs"])
    answer = send(model, row)
    assert answer.status == 200, answer.body
    # A tiny detector finds nothing.
    assert read_json(answer.body) or mode == "zero_shot_object_detection"
    if form.explain:
        explained = send(model, {**row, "path": form.explain})
        assert (explained.status, explained.content_type) == (200, HTML), explained.body


@pytest.mark.parametrize("accept", ["application/json", "*/*", ""])
def test_a_program_without_a_body_gets_an_error(served: Callable[..., Served], accept: str) -> None:
    http_request = HttpRequest({"body": b""}, {"Accept": accept})
    ((status, body),) = served("sequence_classification").post(http_request)
    assert (status, "no body" in body["message"] or "empty" in body["message"]) == (400, True)


def test_names_are_escaped(served: Callable[..., Served]) -> None:
    engine = served("sequence_classification").engine
    model = Dispatcher(engine, HOSTILE)
    (response,) = model.dispatch([HttpRequest({}, {"Accept": ACCEPT})], Meter())
    assert b"<script" not in response.body
    assert b"script-src" not in response.body  # so that default-src 'none' holds for scripts
