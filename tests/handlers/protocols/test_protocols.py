"""The contract of every protocol in `handlers/protocols/`, and the bodies of two of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from hf_serve.handlers import protocols
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import BadRequest, RequestTooLarge
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.protocols import open_inference, sagemaker
from hf_serve.handlers.protocols.base import BaseProtocol, ParsedRequest
from hf_serve.handlers.protocols.open_inference import tensors
from hf_serve.handlers.protocols.openai import endpoint
from hf_serve.handlers.types.model_info import (
    Generation,
    Limits,
    ModelInfo,
    ModelOutputs,
    TaskDescription,
    Wire,
)
from hf_serve.handlers.types.request import Request
from tests.sentences import Sentence, refused
from tests.serving import read_json

MODEL = ModelInfo(
    name="m",
    version="1.0",
    mode="sequence_classification",
    save_mode="pretrained",
    dtype="float32",
    labels=["bad", "good"],
    limits=Limits(max_length=16, max_rows=3, max_characters=100, truncation=True),
    inputs={},
    results={},
    parameters={"top_k": {"default": 1}},
    explanation={},
    task=TaskDescription(
        Wire(str, str, {"inputs": "a"}, [("text",), ("text", "text_pair")]),
        outputs=ModelOutputs(("logits",)),
    ),
    settings=HandlerSection(mode="sequence_classification"),
)
KNOWN = protocols.create(MODEL)
FIRST = HttpRequest({"body": "a"}, {})
CHAT = [{"role": "user", "content": "a"}]
QUESTION = {"question": "a", "context": "b"}
LISTS = [Request("a", is_batch_item=True), Request("b", is_batch_item=True)]
MISTAKE = BadRequest("half \ud83d of it")


def read(content: Any, *, explain: bool = False) -> list[Request]:
    http_request = HttpRequest(
        {"body": content}, {"explain": str(explain), "Content-Type": "application/json"}
    )
    chosen = next(each for each in KNOWN if each.recognises(http_request))
    return chosen.parse(http_request).requests


def protocol(name: str) -> BaseProtocol:
    return next(each for each in KNOWN if type(each).__module__.endswith(name))


def found_texts(answer: Any) -> list[Any]:
    """Return the values of an answer at any depth."""
    if not isinstance(answer, dict):
        return [answer]
    return [text for value in answer.values() for text in found_texts(value)]


@pytest.mark.parametrize(
    ("content", "requests"),
    [
        ({"inputs": "a"}, [Request("a")]),
        ({"inputs": "a", "parameters": {"top_k": 2}}, [Request("a", {"top_k": 2})]),
        ({"inputs": "a", "parameters": None, "options": {"use_cache": False}}, [Request("a")]),
        ({"inputs": ["a", "b"]}, LISTS),
        ({"inputs": {"text": "a", "text_pair": "b"}}, [Request({"text": "a", "text_pair": "b"})]),
        ("a", [Request("a")]),
        (["a", "b"], LISTS),
        ({"text": "a", "target": 1}, [Request("a")]),
        ({"question": "a", "context": "b"}, [Request({"question": "a", "context": "b"})]),
        ({"text": "a", "text_pair": "b"}, [Request({"text": "a", "text_pair": "b"})]),
        ({"inputs": "a", "target": 1}, [Request("a")]),
        ({"inputs": {"b64": "YQ=="}}, [Request("a")]),
        ({"text": "a", "parameters": {"top_k": 2}}, [Request("a", {"top_k": 2})]),
        ({"prompt": "a", "parameters": {"top_k": 2}}, [Request("a", {"top_k": 2})]),
        ({"messages": CHAT, "parameters": {"top_k": 2}}, [Request(CHAT, {"top_k": 2})]),
        ({**QUESTION, "parameters": {"top_k": 2}}, [Request(QUESTION, {"top_k": 2})]),
    ],
)
def test_a_body_becomes_requests(content: Any, requests: list[Request]) -> None:
    assert read(content) == requests


@pytest.mark.parametrize("name", ["text", "inputs"])
def test_a_target_is_for_explanations_only(name: str) -> None:
    assert read({name: "a", "target": 1}, explain=True) == [Request("a", {"target": 1})]
    given = {name: "a", "target": 1, "parameters": {"n_steps": 9}}
    assert read(given, explain=True) == [Request("a", {"target": 1, "n_steps": 9})]


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ({}, ["body"]),
        ({"txt": "a"}, ["txt"]),
        ({"\ud83d": "a"}, ["body"]),
        ({"text": "a", "extra": 1}, ["text", "extra"]),
        (
            {"inputs": "a", "paramters": {}},
            ["paramters"],
        ),
        ({"parameters": {}}, ["body"]),
        ({"input": "a", "parameters": {}}, ["input"]),
        ({"inputs": "a", "parameters": [1]}, ["parameters"]),
        ({"inputs": []}, ["inputs"]),
        ([], ["inputs"]),
        (5, ["body"]),
        (None, ["body"]),
        ({1: 2}, ["1"]),
        ({1: 2, "inputs": "a"}, ["1"]),
    ],
)
def test_a_body_of_another_shape_is_refused(content: Any, facts: list[str]) -> None:
    with pytest.raises(BadRequest) as caught:
        read(content)
    assert str(caught.value) == Sentence(*facts)


@pytest.mark.parametrize("content", [{"inputs": ["a"] * 4}, ["a"] * 4])
def test_too_many_items_are_refused(content: Any) -> None:
    with refused(RequestTooLarge, "inputs", 4, 3):
        read(content)


@pytest.mark.parametrize("protocol", KNOWN, ids=lambda protocol: type(protocol).__module__)
class TestEveryProtocol:
    def test_writes_an_error_with_its_status(self, protocol: BaseProtocol) -> None:
        answer = protocol.error_response(FIRST, MISTAKE)
        assert (answer.status, answer.content_type) == (400, "application/json")
        assert str(MISTAKE) in found_texts(read_json(answer.body))


@pytest.mark.parametrize("name", ["hugging_face", "legacy"])
class TestResultsByThemselves:
    def test_are_written_as_json(self, name: str) -> None:
        answer = protocol(name).write(
            ParsedRequest(FIRST, [Request("a")]), [{"answer": "Zürich 🎉"}]
        )
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert "Zürich 🎉" in answer.body.decode()

    def test_never_are_what_is_not_json(self, name: str) -> None:
        with pytest.raises(ValueError):
            protocol(name).write(ParsedRequest(FIRST, [Request("a")]), [{"score": float("nan")}])

    def test_have_errors_of_a_list_in_their_places(self, name: str) -> None:
        answer = protocol(name).write(ParsedRequest(FIRST, LISTS), ["fine", MISTAKE])
        first, second = read_json(answer.body)
        assert (answer.status, first, second["code"]) == (200, "fine", 400)

    def test_are_an_error_where_all_are(self, name: str) -> None:
        assert protocol(name).write(ParsedRequest(FIRST, LISTS), [MISTAKE, MISTAKE]).status == 400


def test_the_describe_call_returns_the_model_info() -> None:
    http_request = HttpRequest({}, {"describe": "True"})
    chosen = next(each for each in KNOWN if each.recognises(http_request))
    answer = read_json(chosen.write(chosen.parse(http_request), []).body)
    assert answer["mode"] == "sequence_classification"
    assert answer["labels"] == ["bad", "good"]
    assert answer["limits"]["max_rows"] == 3
    assert answer["parameters"]["top_k"]["default"] == 1
    assert "settings" not in answer


def tensor_bytes(texts: list[str]) -> tuple[bytes, dict[str, str]]:
    """Return a body of the Open Inference Protocol with its tensor as bytes, and its header."""
    data = b"".join(len(text).to_bytes(4, "little") + text.encode() for text in texts)
    head = {"name": "args", "datatype": "BYTES", "shape": [len(texts)]}
    inputs = [{**head, "parameters": {"binary_data_size": len(data)}}]
    start = json.dumps({"inputs": inputs}).encode()
    return start + data, {"Inference-Header-Content-Length": str(len(start))}


TENSOR = {"name": "args", "datatype": "BYTES", "shape": [2], "data": ["a", ""]}
BINARY, LENGTH = tensor_bytes(["a", ""])
JSON_TYPE = {"Content-Type": "application/json"}
DETAILS = {"finish_reason": "length", "input_length": 1, "generated_tokens": 1}
DEFAULTS = {
    "max_new_tokens": {"default": None},
    "num_beams": {"default": 1},
    "prompt_lookup_num_tokens": {"default": None},
    "num_return_sequences": {"default": 1},
    "return_full_text": {"default": True},
}


@pytest.mark.parametrize(
    ("body", "headers", "json_texts"),
    [
        (b'{"inputs": ["a", ""]}', JSON_TYPE, 1),
        (b'{"inputs": "a", "stream": true}', JSON_TYPE, 1),
        (b'{"text": "a"}', JSON_TYPE, 1),
        (b'{"instances": ["a", {"txt": 1}]}', JSON_TYPE, 1),
        (b'{"inputs": ["a", "b"]}\n{', {"Content-Type": "application/jsonlines"}, 2),
        (b"text\na\nb\n", {"Content-Type": "text/csv"}, 0),
        (json.dumps({"inputs": [TENSOR]}).encode(), JSON_TYPE, 1),
        (BINARY, LENGTH, 1),
        (b'{"prompt": ["a", "b"]}', {**JSON_TYPE, "url_path": "v1/completions"}, 1),
        (b'{"prompt": "a", "max_tokens": 2, "stream": true}', JSON_TYPE, 1),
        (b'{"input": "a", "stream": true}', {**JSON_TYPE, "url_path": "v1/responses"}, 1),
        (b'{"inputs": "a"}', {**JSON_TYPE, "url_path": "generate"}, 1),
        (b'{"inputs": "a"}', {**JSON_TYPE, "url_path": "generate_stream"}, 1),
    ],
)
def test_a_body_is_parsed_once(
    body: bytes, headers: dict[str, str], json_texts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the bytes to the response: JSON, CSV and the pydantic models of bodies."""
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    count(json, "loads")
    count(sagemaker, "read_csv")
    count(open_inference, "read_tensors")
    for module in (tensors, endpoint):
        count(module, "parse_body")
    http_request = HttpRequest({"body": body}, headers)
    columns = ("generated_text",)
    wire = replace(MODEL.task.wire, result_columns=columns)
    task = replace(MODEL.task, wire=wire, generation=Generation(texts=True))
    model = replace(MODEL, task=task, parameters=DEFAULTS)
    known = protocols.create(model)
    chosen = next(each for each in known if each.recognises(http_request))
    parsed = chosen.parse(http_request)
    texts = [{"generated_text": "a", "details": DETAILS}]
    assert chosen.write(parsed, [texts for _ in parsed.requests]).status == 200
    assert calls.pop("loads", 0) == json_texts
    assert set(calls.values()) <= {1}
