from __future__ import annotations

import json
from typing import Any

import pytest

from hf_serve.handlers.errors import BadRequest, RequestTooLarge
from hf_serve.handlers.http.limits import MIN_VALUES, BodyLimits
from hf_serve.handlers.http.request import HttpRequest, distinct_names
from tests.sentences import Sentence, refused

NESTED = 100_000
WORDS = {"inputs": "A film"}
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def read(body: Any, content_type: str | None = None) -> Any:
    headers = {} if content_type is None else {"Content-Type": content_type}
    return HttpRequest({"body": body}, headers).content


@pytest.mark.parametrize(
    ("body", "content_type", "content"),
    [
        # TorchServe reads application/json itself, and decodes text/*; the rest comes as bytes.
        (WORDS, JSON, WORDS),
        ("A film", JSON, "A film"),
        ('{"not": "read twice"}', JSON, '{"not": "read twice"}'),
        (42, JSON, 42),
        (b'{"inputs": "A film"}', JSON, WORDS),
        (b'"A film"', "application/vnd.api+json; charset=utf-8", "A film"),
        (bytearray(b'{"inputs": "A film"}'), None, WORDS),
        (b'\xef\xbb\xbf{"inputs": "A film"}', None, WORDS),
        (' \n{"inputs": "A film"}', TEXT, WORDS),
        ("A film", TEXT, "A film"),
        (b"A film", None, "A film"),
        ("Zürich 🎉".encode(), None, "Zürich 🎉"),
        (b'["A film", "a song"]', None, ["A film", "a song"]),
        (b"[sic] a film", None, "[sic] a film"),
        (b"{sic} a film", None, "{sic} a film"),
        (b"{}", None, {}),
        (b"{'text': 'A film', 'target': (1, 2)}", None, {"text": "A film", "target": (1, 2)}),
        (b'{"text": "A film", "target": True}', None, {"text": "A film", "target": True}),
        (b"{'question' :\"Who's there?\"}", None, {"question": "Who's there?"}),
        (b'{"inputs": "A film", "inputs": "a song"}', None, {"inputs": "a song"}),
    ],
)
def test_a_body_of_any_content_type_is_read(
    body: Any, content_type: str | None, content: Any
) -> None:
    assert read(body, content_type) == content


@pytest.mark.parametrize(
    ("body", "content_type", "facts"),
    [
        (b"", None, ["body"]),
        (" \n\t", TEXT, ["body"]),
        ("", JSON, ["body"]),
        (b'{"inputs": }', None, ["JSON", "1", "12"]),
        (
            b'{"inputs":\n "A',
            None,
            ["JSON", "2"],
        ),
        (b"A film", JSON, ["JSON", "1"]),
        (b"\xff\xfeA", None, ["UTF-8", "0xff"]),
        ("Zürich".encode("latin-1"), None, ["UTF-8", "0xfc"]),
        (b"{'a': __import__('os')}", None, ["JSON"]),
        (b"{'a': 1} + {'b': 2}", None, ["JSON"]),
        (b"{'a', 'b'}", None, ["JSON"]),
        (b'{"a":' * NESTED, None, ["64"]),
        (b"{'a':" * 15_000 + b"1" + b"}" * 15_000, None, ["64"]),
        (b"{'a': " + b"-" * 90_000 + b"1}", None, ["JSON"]),
        (b"{'a': 1" + b"+1" * 40_000 + b"}", None, ["JSON"]),
        (b"{'a': " + b"'b'," * 90_000 + b"}", None, ["JSON"]),
        (
            b'{"inputs": ' + b"9" * 5000 + b"}",
            None,
            ["JSON"],
        ),
    ],
    ids=range(17),
)
def test_a_broken_body_is_refused_with_the_place_of_the_mistake(
    body: Any, content_type: str | None, facts: list[str]
) -> None:
    with pytest.raises(BadRequest) as caught:
        read(body, content_type)
    assert str(caught.value) == Sentence(*facts)
    assert len(str(caught.value)) < 120


def test_no_body_is_refused() -> None:
    with refused(BadRequest, "JSON"):
        _ = HttpRequest({}, {}).content


def test_a_form_is_read_as_its_fields() -> None:
    row = {"question": b"Who sings?", "context": bytearray("Zoë".encode())}
    assert HttpRequest(row, {}).content == {"question": "Who sings?", "context": "Zoë"}


def test_a_field_that_comes_again_or_is_named_as_a_list_is_a_list() -> None:
    fields = ["inputs", "kinds[]", "inputs", "kinds[]", "one[]", "alone", "inputs"]
    values = ["A film", "word", '["B"]', "segment", "1", "2", '{"c": 1}']
    row = {name: value.encode() for name, value in zip(distinct_names(fields), values, strict=True)}
    assert HttpRequest(row, {"content-type": FORM}).content == {
        "inputs": ["A film", ["B"], {"c": 1}],
        "kinds": ["word", "segment"],
        "one": ["1"],
        "alone": "2",
    }


def test_bodies_in_several_fields_are_a_list() -> None:
    row = dict(zip(distinct_names(["data", "data"]), (b"A film", b"a song"), strict=True))
    assert HttpRequest(row, {}).content == {"data": ["A film", "a song"]}


def test_the_fields_of_a_form_are_counted() -> None:
    row = dict.fromkeys(distinct_names(["a"] * (MIN_VALUES + 1)), b"")
    with refused(RequestTooLarge, MIN_VALUES + 1, MIN_VALUES):
        _ = HttpRequest(row, {}, limits=BodyLimits(max_values=MIN_VALUES)).content


@pytest.mark.parametrize("value", [b"/v1/models/", "v1/models", "/v1//models"])
def test_a_path_without_a_version_is_in_the_query(value: Any) -> None:
    request = HttpRequest({"path": value, "body": b"Ada"}, {"url_path": ""})
    assert (request.path, request.content) == ("v1/models", "Ada")
    below = HttpRequest({"path": value, "body": b"Ada"}, {"url_path": "embed"})
    assert below.path == "embed"


def test_a_path_in_the_query_is_no_body() -> None:
    with refused(BadRequest, "body"):
        _ = HttpRequest({"path": b"v1/models"}, {}).content
    assert HttpRequest({"path": b"\xff"}, {}).path == "\ufffd"


def test_the_model_name_in_a_query_is_not_a_field() -> None:
    assert HttpRequest({"model_name": b"m", "text": b"A film"}, {}).content == {"text": "A film"}


@pytest.mark.parametrize(
    ("name", "value", "content"),
    [
        ("parameters", b'{"top_k": 2, "stop": null}', {"top_k": 2, "stop": None}),
        ("parameters", b"{'top_k': 2}", {"top_k": 2}),
        ("parameters", {"top_k": 2}, {"top_k": 2}),
        ("parameters", b"", ""),
        ("inputs", b'["a", "b"]', ["a", "b"]),
        ("inputs", b'{"question": "a", "context": "b"}', {"question": "a", "context": "b"}),
        ("inputs", b"[sic] 5", "[sic] 5"),
        ("inputs", b"5", "5"),
        ("target", b"1", 1),
        ("target", b"(1, 2)", (1, 2)),
        ("target", b"[1, 2]", [1, 2]),
        ("target", b'{"start": 0, "end": 3, "label": null}', {"start": 0, "end": 3, "label": None}),
        ("target", b"POSITIVE", "POSITIVE"),
        ("target", b"True", "True"),
        ("text", b'{"a": 1}', '{"a": 1}'),
        ("context", b"5", "5"),
    ],
)
def test_fields_with_json_values_are_read(name: str, value: Any, content: Any) -> None:
    assert HttpRequest({name: value}, {"Content-Type": FORM}).content == {name: content}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", "hi"),
        ("text", 'caf\u00e9 "hi"'),
        ("inputs", "hi"),
        ("inputs", ["a", "b"]),
        ("inputs", "[1]"),
        ("messages", [{"role": "user", "content": "hi"}]),
        ("stream", False),
        ("target", 1),
        ("parameters", {"top_k": 2}),
        ("context", None),
    ],
)
def test_a_part_of_json_is_read_whoever_parses_it(name: str, value: Any) -> None:
    text = json.dumps(value)
    forms: list[tuple[str, Any]] = [
        (JSON, bytearray(text.encode())),
        (JSON, value),
        ("application/json; charset=utf-8", bytearray(text.encode())),
        ("text/json", bytearray(text.encode())),
        ("text/json", text),
    ]
    for kind, sent in forms:
        headers = {name: {"content-type": kind}, "k": {"content-type": ""}}
        row = {name: sent, "k": b'"v"'}
        assert HttpRequest(row, headers).content == {name: value, "k": '"v"'}, (kind, sent)


@pytest.mark.parametrize("name", ["text", "parameters", "messages"])
def test_a_broken_part_of_json_is_refused(name: str) -> None:
    headers = {name: {"content-type": JSON}}
    with refused(BadRequest, name, "JSON"):
        _ = HttpRequest({name: bytearray(b'["a", '), "k": b"v"}, headers).content


def test_the_values_of_all_parts_are_counted() -> None:
    limits = BodyLimits(max_values=10)
    row = {"a": b"[[], []]", "b": b"[[], [], [], [], [], []]"}
    headers = {name: {"content-type": JSON} for name in row}
    sizes = {
        name: len(value) for name, value in HttpRequest(row, headers, limits=limits).content.items()
    }
    assert sizes == {"a": 2, "b": 6}
    more = {**row, "c": b"[]"}
    headers["c"] = {"content-type": JSON}
    with refused(RequestTooLarge, "c", 10):
        _ = HttpRequest(more, headers, limits=limits).content


def test_a_field_may_have_as_many_values_as_the_body() -> None:
    value = json.dumps([[]] * MIN_VALUES).encode()
    more = BodyLimits(max_values=MIN_VALUES + 1)
    assert len(HttpRequest({"inputs": value}, {}, limits=more).content["inputs"]) == MIN_VALUES
    with refused(RequestTooLarge, "inputs", 100_000):
        _ = HttpRequest({"inputs": value}, {}).content


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        (b'{"top_k": }', ["parameters", "JSON", "1", "11"]),
        (b"\xff", ["parameters", "UTF-8", "0xff", "0"]),
    ],
)
def test_a_broken_field_is_named(value: Any, facts: list[str]) -> None:
    with pytest.raises(BadRequest) as caught:
        _ = HttpRequest({"inputs": b"a", "parameters": value}, {}).content
    assert str(caught.value) == Sentence(*facts)


@pytest.mark.parametrize(
    "row",
    # Rows that TorchServe makes of curl -d with a text, with a sum, and with JSON.
    [{}, {"a ": b" b"}, {'{"inputs": "a ': b' b"}'}],
)
def test_a_body_that_is_read_as_a_form_is_refused_with_the_header_to_add(row: Any) -> None:
    with refused(BadRequest, "-H 'Content-Type: text/plain'"):
        _ = HttpRequest(row, {"Content-Type": f"{FORM}; charset=UTF-8"}).content


def test_a_field_called_data_is_the_body() -> None:
    row = {"data": b'"A film"', "model_name": "m", "model": "m", "path": ""}
    assert HttpRequest(row, {"data": {"content-type": JSON}}).content == "A film"


@pytest.mark.parametrize("body", ["data", "body"])
def test_a_field_that_is_not_read_with_the_body_is_refused(body: str) -> None:
    with refused(BadRequest, "top_k", body, "parameters"):
        _ = HttpRequest({"model_name": "m", "top_k": "1", body: b"A film"}, {}).content


@pytest.mark.parametrize(
    ("name", "value", "read"), [("parameters", b'{"top_k": 2}', {"top_k": 2}), ("target", b"1", 1)]
)
def test_a_field_called_data_can_have_settings(name: str, value: bytes, read: Any) -> None:
    row = {"data": b"A film", name: value}
    assert HttpRequest(row, {"Content-Type": FORM}).content == {"data": "A film", name: read}
    whole = {"data": b'{"question": "a", "context": "b"}', name: value}
    assert HttpRequest(whole, {}).content == {"data": {"question": "a", "context": "b"}, name: read}


@pytest.mark.parametrize("name", ["content-type", "Content-Type", "CONTENT-TYPE"])
def test_header_names_are_case_insensitive(name: str) -> None:
    assert HttpRequest({"body": json.dumps("A film").encode()}, {name: JSON}).content == "A film"


@pytest.mark.parametrize(("header", "explains"), [("True", True), ("False", False), (None, False)])
def test_the_explain_header_requests_an_explanation(header: str | None, explains: bool) -> None:
    assert HttpRequest({}, {"explain": header}).explains is explains


@pytest.mark.parametrize(
    ("path", "explains"),
    [
        ("v2/models/m/explain", True),
        ("v1/models/m:explain/", True),
        ("v2/models/m/infer", False),
        ("v1/explained", False),
    ],
)
def test_a_path_that_ends_with_explain_requests_an_explanation(path: str, explains: bool) -> None:
    assert HttpRequest({}, {"url_path": path, "explain": "False"}).explains is explains


def test_a_describe_call_has_no_row_and_is_no_prediction() -> None:
    assert HttpRequest({}, {"describe": "True"}).describes
    assert not HttpRequest({"body": "A film"}, {"describe": "True"}).describes
    assert not HttpRequest({}, {"describe": "True", "explain": "False"}).describes


@pytest.mark.parametrize(
    ("headers", "by_grpc"),
    [
        ({}, True),
        ({"data": {"content-type": ""}}, True),
        ({"data": {"content-type": ""}, "Host": "localhost"}, False),
        ({"describe": "True"}, False),
    ],
)
def test_a_request_over_grpc_has_no_headers(headers: Any, by_grpc: bool) -> None:
    assert HttpRequest({"data": b"A film"}, headers).by_grpc is by_grpc
