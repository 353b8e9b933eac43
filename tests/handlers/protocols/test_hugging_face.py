"""Requests and answers of Hugging Face's own clients; tests/e2e has tests with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from hf_serve.handlers.errors import (
    BadRequest,
    DeadlineExceeded,
    InternalError,
    OutOfMemory,
    RequestError,
)
from hf_serve.handlers.generation.parameters import NAMES
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols.hugging_face import TOKEN_DETAILS, Protocol
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.handlers.protocols.test_protocols import MODEL
from tests.samples import FINE, ODD
from tests.sentences import Sentence, refused
from tests.serving import Served, read_json

HUB = {"user-agent": "unknown/None; hf_hub/2.4.0; python/3.11.7"}
FEW = {"max_new_tokens": 12}
NONE: dict[str, str] = {}
Sent = list[HttpResponse]


@pytest.fixture
def model(served: Callable[..., Served], monkeypatch: Any) -> Served:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    return model


def call(
    model: Served, body: Any, sent: Sent | None = None, *, headers: Mapping[str, str] = NONE
) -> HttpResponse:
    """Return the answer to a body; parts that are sent before it go into `sent`."""
    send = None if sent is None else sent.append
    (answer,) = model.dispatcher.dispatch([HttpRequest({"body": body}, headers, send)], Meter())
    return answer


def events(*answers: HttpResponse) -> list[Any]:
    assert {(answer.status, answer.content_type) for answer in answers} == {
        (200, "text/event-stream")
    }
    *lines, end = b"".join(answer.body for answer in answers).decode().split("\n\n")
    assert end == ""
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize(
    ("inputs", "parameters"),
    [
        ("Ada", FEW),
        (ODD, {**FEW, "return_full_text": False}),
        ("Ada", {**FEW, "stop": ["e"], "details": True}),
        ("Ada", {**FEW, "num_beams": 2}),
        (CHAT, FEW),
        (CHAT, {**FEW, "return_full_text": False}),
    ],
)
@pytest.mark.parametrize("in_parts", [True, False])
def test_a_stream_adds_up_to_the_answer(
    model: Served, inputs: Any, parameters: Any, in_parts: bool
) -> None:
    (whole,) = model.ask(inputs, **parameters)
    (new,) = model.ask(inputs, **{**parameters, "return_full_text": False})
    sent: Sent = []
    body = {"inputs": inputs, "parameters": parameters, "stream": True}
    last = call(model, body, sent if in_parts else None)
    parts = events(*sent, last)
    assert "".join(part["token"]["text"] for part in parts) == new["generated_text"]
    assert [part["index"] for part in parts] == list(range(1, len(parts) + 1))
    assert {part["generated_text"] for part in parts[:-1]} <= {None}
    assert parts[-1]["generated_text"] == whole["generated_text"]
    details = whole.get("details", {})
    facts = {name: fact for name, fact in details.items() if name not in TOKEN_DETAILS}
    assert (parts[-1]["details"] or {}) == facts


def test_a_stream_with_details_has_an_event_for_each_token(model: Served) -> None:
    parameters = {**FEW, "details": True, "top_n_tokens": 2}
    (whole,) = model.ask("Ada", **parameters)
    sent: Sent = []
    last = call(model, {"inputs": "Ada", "parameters": parameters, "stream": True}, sent)
    parts = events(*sent, last)
    assert [part["token"] for part in parts] == whole["details"]["tokens"]
    assert [part["top_tokens"] for part in parts] == whole["details"]["top_tokens"]
    assert parts[-1]["details"].keys() == whole["details"].keys() - TOKEN_DETAILS


def test_a_stream_is_sent_in_many_parts(model: Served) -> None:
    sent: Sent = []
    call(model, {"inputs": "Ada", "parameters": FEW, "stream": True}, sent)
    assert len(sent) > 3


def test_each_event_of_a_stream_has_the_id_of_its_token(model: Served) -> None:
    parts = events(call(model, {"inputs": "Ada", "parameters": FEW, "stream": True}))
    (whole,) = model.ask("Ada", **FEW, details=True)
    ids = [token["id"] for token in whole["details"]["tokens"]]
    assert [part["token"]["id"] for part in parts] == ids


def test_a_stream_that_fails_ends_with_an_error_event(model: Served, monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(model.engine.task, "decode", fail)
    body, sent = {"inputs": "Ada", "parameters": FEW, "stream": True}, Sent()
    last = events(*sent, call(model, body, sent))[-1]
    assert last["error_type"] == "generation" and "RuntimeError" in last["error"]
    assert call(model, body).status == 500


@pytest.mark.parametrize(
    ("mode", "body", "status", "facts"),
    [
        ("text_generation", {"inputs": "a", "stream": "yes"}, 400, ["stream"]),
        ("text_generation", {"inputs": ["a", "b"], "stream": True}, 422, ["stream"]),
        ("text_generation", {"inputs": "", "stream": True}, 400, ["inputs"]),
        ("sequence_classification", {"inputs": "a", "stream": True}, 422, []),
        (
            "text_generation",
            {"inputs": "a", "parameters": {"num_return_sequences": 2}, "stream": True},
            422,
            ["stream"],
        ),
    ],
)
def test_an_impossible_stream_is_refused(
    served: Callable[..., Served], mode: str, body: Any, status: int, facts: list[str]
) -> None:
    sent: Sent = []
    answer = call(served(mode), body, sent)
    assert (answer.status, sent) == (status, [])
    assert read_json(answer.body)["message"] == Sentence(*facts)


def test_an_explanation_cannot_be_streamed(model: Served) -> None:
    assert call(model, {"inputs": "Ada", "stream": True}, headers={"explain": "True"}).status == 422


@pytest.mark.parametrize("stream", [False, None])
def test_a_request_without_streaming_gets_the_usual_answer(model: Served, stream: Any) -> None:
    answer = call(model, {"inputs": "Ada", "parameters": FEW, "stream": stream})
    assert read_json(answer.body) == model.ask("Ada", **FEW)


def test_settings_without_effect_are_ignored(model: Served) -> None:
    same = model.ask("Ada", **FEW)
    usual = {name: next(iter(known or []), True) for name, known in NAMES.ignored.items()}
    assert model.ask("Ada", **FEW, **usual) == same
    assert model.ask("Ada", **FEW, **dict.fromkeys(NAMES.ignored)) == same
    status, sentence = model.refuse("Ada", watermark=True)
    assert (status, "watermark" in sentence) == (422, True)


@pytest.mark.parametrize("agent", [HUB["user-agent"], "@huggingface/inference/4.13.30"])
@pytest.mark.parametrize("parameters", [{}, {"top_k": 2}])
def test_hugging_faces_clients_get_labels_in_a_list_of_lists(
    served: Callable[..., Served], agent: str, parameters: Any
) -> None:
    model = served("sequence_classification")
    body = {"inputs": FINE, "parameters": parameters}
    answer = call(model, body, headers={"User-Agent": agent})
    assert read_json(answer.body) == [model.ask(FINE, **parameters)]
    several = call(model, {**body, "inputs": [FINE, ODD]}, headers={"User-Agent": agent})
    assert read_json(several.body) == model.ask([FINE, ODD], **parameters)


def test_the_hubs_client_gets_each_candidate_label_with_its_score(
    served: Callable[..., Served],
) -> None:
    model = served("zero_shot_classification")
    parameters = {"candidate_labels": ["film", "bar"]}
    body = {"inputs": FINE, "parameters": parameters}
    pipelines = model.ask(FINE, **parameters)
    pairs = zip(pipelines["labels"], pipelines["scores"], strict=True)
    expected = [{"label": label, "score": score} for label, score in pairs]
    assert read_json(call(model, body, headers=HUB).body) == expected
    earlier = {"user-agent": "unknown/None; hf_hub/0.36.0; python/3.11.7"}
    assert read_json(call(model, body, headers=earlier).body) == pipelines


def test_other_answers_are_the_same_for_every_client(served: Callable[..., Served]) -> None:
    model = served("token_classification")
    assert read_json(call(model, {"inputs": FINE}, headers=HUB).body) == model.ask(FINE)


@pytest.mark.parametrize(
    ("body", "path", "kind"),
    [
        ({"inputs": ""}, "", {"error_type": "validation"}),
        (
            {"inputs": "Ada", "parameters": {"max_new_tokens": 999}},
            "",
            {"error_type": "validation"},
        ),
        ({"inputs": "Ada", "parameters": {"best_of": 2}}, "", {"error_type": "validation"}),
        ({"inputs": "Ada", "stream": True, "parameters": 5}, "", {"error_type": "validation"}),
        ({}, "", {"error_type": "validation"}),
        (b"{", "", {"error_type": "validation"}),
        ({"inputs": "Ada"}, "unknown", {}),
    ],
)
def test_an_error_has_the_keys_that_the_clients_of_text_generation_inference_read(
    model: Served, body: Any, path: str, kind: dict[str, str]
) -> None:
    answer = call(model, body, headers={"url_path": path, "Content-Type": "application/json"})
    error = read_json(answer.body)
    assert answer.status == error["code"] >= 400
    expected = {"code": answer.status, "type": error["type"], "message": error["message"]}
    assert error == {**expected, "error": error["message"], **kind}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DeadlineExceeded(), "overloaded"),
        (OutOfMemory(), "generation"),
        (InternalError(KeyError()), "generation"),
    ],
)
def test_the_error_of_a_worker_has_their_type(error: RequestError, kind: str) -> None:
    assert error.whole_body() == {**error.body(), "error": str(error), "error_type": kind}


@pytest.mark.parametrize(
    ("parameters", "facts"),
    [
        ({"top_k": 0}, ["top_k", "0"]),
        ({"größe\n": 1}, []),
    ],
)
def test_an_error_message_is_in_the_header_that_the_hubs_clients_read(
    served: Callable[..., Served], parameters: Any, facts: list[str]
) -> None:
    answer = call(served("sequence_classification"), {"inputs": FINE, "parameters": parameters})
    message = answer.headers["X-Error-Message"]
    assert message == Sentence(*facts)
    assert message.isascii() and message.isprintable()


def test_parameters_of_embeddings_may_stand_beside_the_inputs() -> None:
    """As the hub's client writes them."""
    known = {"normalize": {"default": None}, "truncate": {"default": None}}
    protocol = Protocol(replace(MODEL, task=replace(MODEL.task, service="embed"), parameters=known))
    body = {"inputs": "a", "normalize": True, "parameters": {"truncate": False}}
    parsed = protocol.parse(HttpRequest({"body": body}, {}))
    assert parsed.requests == [Request("a", {"normalize": True, "truncate": False})]
    with refused(BadRequest, "normalise"):
        protocol.parse(HttpRequest({"body": {"inputs": "a", "normalise": True}}, {}))
