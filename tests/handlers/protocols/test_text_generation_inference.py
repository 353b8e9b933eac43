"""Text-generation-inference's paths; tests/e2e has tests with a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from tests.modes import each_mode
from tests.samples import FINE, ODD, text_modes
from tests.sentences import Sentence
from tests.serving import Served, read_json

FEW = {"max_new_tokens": 6}
SEEDED = {**FEW, "seed": 3}
Load = Callable[..., Served]
Sent = list[HttpResponse]
every_mode = pytest.mark.parametrize("mode", each_mode(text_modes()))


@pytest.fixture
def model(served: Load) -> Served:
    return served("text_generation", family="GPT2")


def call(
    model: Served, path: str, body: Any = None, sent: Sent | None = None, **headers: str
) -> HttpResponse:
    """Return the answer to a body; parts that are sent before it go into `sent`."""
    row = {} if body is None else {"body": body}
    send = None if sent is None else sent.append
    http_request = HttpRequest(row, {"url_path": path, **headers}, send)
    (answer,) = model.dispatcher.dispatch([http_request], Meter())
    return answer


def ask(model: Served, path: str, body: Any = None) -> Any:
    answer = call(model, path, body)
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.body
    return read_json(answer.body)


def refuse(model: Served, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    answer = call(model, path, body, None, **headers)
    return answer.status, read_json(answer.body)


def events(*answers: HttpResponse) -> list[Any]:
    assert {answer.content_type for answer in answers} == {"text/event-stream"}
    *lines, end = b"".join(answer.body for answer in answers).decode().split("\n\n")
    assert end == ""
    return [json.loads(line.removeprefix("data:")) for line in lines]


def test_a_prompt_gets_the_new_text_alone(model: Served) -> None:
    answer = ask(model, "generate", {"inputs": "Ada", "parameters": FEW})
    (same,) = model.ask("Ada", return_full_text=False, **FEW)
    assert answer == same
    whole = {"inputs": "Ada", "parameters": {**FEW, "return_full_text": True}}
    assert ask(model, "generate", whole)["generated_text"] == "Ada" + answer["generated_text"]


def test_details_have_the_keys_that_clients_expect(model: Served) -> None:
    details = ask(model, "generate", {"inputs": "Ada", "parameters": {**FEW, "details": True}})[
        "details"
    ]
    assert (details["finish_reason"], details["generated_tokens"]) == ("length", 6)
    assert details["prefill"] == [] and isinstance(details["tokens"], list)


@pytest.mark.parametrize(
    ("parameters", "tokens"), [({}, 100), ({"max_new_tokens": None}, 100), ({"max_length": 4}, 3)]
)
def test_a_text_has_at_most_100_new_tokens_by_default(
    model: Served, parameters: Any, tokens: int
) -> None:
    body = {"inputs": "Ada", "parameters": {"details": True, **parameters}}
    assert ask(model, "generate", body)["details"]["generated_tokens"] == tokens


def test_the_default_of_the_yaml_takes_precedence(checkpoint: Callable[..., Path]) -> None:
    mode = "text_generation"
    model = Served(checkpoint(mode), mode, parameters={"max_new_tokens": 4})
    body = {"inputs": "Ada", "parameters": {"details": True}}
    assert ask(model, "generate", body)["details"]["generated_tokens"] == 4


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ({"temperature": 2.0}, {"do_sample": True, "temperature": 2.0}),
        ({"top_k": 5}, {"do_sample": True, "top_k": 5}),
        ({"top_p": 0.9, "do_sample": False}, {"do_sample": True, "top_p": 0.9}),
        ({"typical_p": 0.5}, {"do_sample": True, "typical_p": 0.5}),
        ({"do_sample": True}, {"do_sample": True}),
        ({"temperature": 1.0, "top_k": 0, "top_p": 1.0}, {}),
        ({"temperature": None, "best_of": 1, "watermark": False, "top_n_tokens": None}, {}),
    ],
)
def test_a_setting_of_sampling_asks_for_it(model: Served, given: Any, parameters: Any) -> None:
    answer = ask(model, "generate", {"inputs": "Ada", "parameters": {**SEEDED, **given}})
    assert [answer] == model.ask("Ada", **{**SEEDED, "return_full_text": False, **parameters})


@pytest.mark.parametrize(
    "parameters", [FEW, {**FEW, "stop": ["e"], "details": True}, {**FEW, "num_beams": 2}]
)
@pytest.mark.parametrize("in_parts", [True, False])
def test_a_stream_adds_up_to_the_answer(model: Served, parameters: Any, in_parts: bool) -> None:
    sent: Sent = []
    body = {"inputs": "Ada", "parameters": parameters}
    last = call(model, "generate_stream", body, sent if in_parts else None)
    parts = events(*sent, last)
    whole = ask(model, "generate", body)
    assert "".join(part["token"]["text"] for part in parts) == whole["generated_text"]
    assert [part["index"] for part in parts] == list(range(1, len(parts) + 1))
    assert {part["generated_text"] for part in parts[:-1]} <= {None}
    assert parts[-1]["generated_text"] == whole["generated_text"]
    if "details" in whole:
        assert parts[-1]["details"]["finish_reason"] == whole["details"]["finish_reason"]


def test_each_token_of_a_stream_has_an_event(model: Served) -> None:
    sent: Sent = []
    last = call(model, "generate_stream", {"inputs": "Ada", "parameters": FEW}, sent)
    shown = [part["token"] for part in events(*sent, last) if part["token"]["id"] is not None]
    body = {"inputs": "Ada", "parameters": {**FEW, "details": True}}
    assert shown == ask(model, "generate", body)["details"]["tokens"]


def test_a_stream_that_fails_ends_with_tgis_error(model: Served, monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(model.engine.task, "decode", fail)
    sent: Sent = []
    last = call(model, "generate_stream", {"inputs": "Ada", "parameters": FEW}, sent)
    assert events(*sent, last)[-1]["error_type"] == "generation"
    status, error = refuse(model, "generate_stream", {"inputs": "Ada", "parameters": FEW})
    assert (status, error["error_type"]) == (500, "generation")


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ({"inputs": ""}, 400, ["inputs"]),
        ({"inputs": ["Ada", "Nina"]}, 400, ["inputs"]),
        ({"inputs": {"text": "Ada"}}, 400, ["inputs"]),
        ({"inputs": "Ada", "paramters": {}}, 400, ["paramters"]),
        ({"parameters": {}}, 400, ["body"]),
        ("Ada", 400, ["body"]),
        (b"{", 400, ["body"]),
        ({"inputs": "Ada", "parameters": {"temperature": 0}}, 400, ["temperature"]),
        ({"inputs": "Ada", "parameters": {"do_sample": "yes"}}, 400, ["do_sample"]),
        ({"inputs": "Ada", "parameters": {"max_new_tokens": 999}}, 422, ["1"]),
        ({"inputs": "Ada", "parameters": {"best_of": 2}}, 422, ["best_of", 2, 1]),
        (
            {"inputs": "Ada", "parameters": {"num_return_sequences": 2, "do_sample": True}},
            422,
            ["response"],
        ),
    ],
)
def test_a_request_that_cannot_be_answered_gets_tgis_error(
    model: Served, body: Any, status: int, facts: list[str]
) -> None:
    for path in ("generate", "generate_stream"):
        found, error = refuse(model, path, body)
        assert (found, error.keys()) == (status, {"error", "error_type"})
        assert error["error_type"] == "validation"
        assert error["error"] == Sentence(*facts)


@pytest.mark.parametrize("path", ["generate", "tokenize", "info"])
def test_explanations_are_refused(model: Served, path: str) -> None:
    status, error = refuse(model, path, {"inputs": "Ada"}, explain="True")
    assert status == 422
    assert error["error"] == Sentence(path)


def test_a_model_that_generates_no_text_refuses_to(served: Load) -> None:
    status, error = refuse(served("question_answering"), "generate", {"inputs": "Ada"})
    assert (status, "question_answering" in error["error"]) == (422, True)


@every_mode
def test_every_model_tells_its_limits_and_its_health(served: Load, mode: str) -> None:
    model = served(mode, max_rows=7)
    found = ask(model, "info")
    assert (found["model_id"], found["model_dtype"]) == ("model", "float32")
    assert found["model_pipeline_tag"] == mode.replace("_", "-")
    assert found["max_input_tokens"] == model.engine.task.limits.max_length
    assert found["max_total_tokens"] == 128
    assert found["max_client_batch_size"] == 7
    answer = call(model, "health")
    assert (answer.status, answer.body) == (200, b"")


@every_mode
def test_texts_get_their_tokens_in_lists(served: Load, mode: str) -> None:
    model = served(mode)
    fine, odd = ask(model, "tokenize", {"inputs": [FINE, ODD]})
    for text, tokens in ((FINE, fine), (ODD, odd)):
        assert [token["id"] for token in tokens] == model.engine.task.checkpoint.tokenizer(text)[
            "input_ids"
        ]
        assert all(
            token["special"] or token["text"] == text[token["start"] : token["stop"]]
            for token in tokens
        )
    plain = ask(model, "tokenize", {"inputs": [FINE], "add_special_tokens": False})
    assert plain == [[token for token in fine if not token["special"]]]


def test_a_wrong_text_has_its_error_in_its_place(model: Served) -> None:
    _, wrong = ask(model, "tokenize", {"inputs": [FINE, ""]})
    assert wrong["code"] == 400


@every_mode
def test_one_text_gets_a_list_as_from_the_server_of_its_kind(served: Load, mode: str) -> None:
    model = served(mode)
    ((of_list,), single) = (ask(model, "tokenize", {"inputs": each}) for each in ([FINE], FINE))
    assert single == (of_list if tasks.get(mode).description.generation.texts else [of_list])


def test_the_characters_of_all_texts_are_limited(served: Load) -> None:
    model = served("text_generation", max_characters=20)
    assert len(ask(model, "tokenize", {"inputs": ["a" * 10] * 2})) == 2
    status, error = refuse(model, "tokenize", {"inputs": ["a" * 7] * 3})
    assert (status, error["error_type"]) == (422, "validation")
    assert error["error"].startswith("inputs has 21 characters in all, and this model takes 20")


def test_too_many_tokens_for_a_response_are_refused_before_they_are_written(served: Load) -> None:
    dispatcher = Dispatcher(
        served("sequence_classification").engine, limits=BodyLimits(max_response_bytes=2000)
    )
    few, many = (
        HttpRequest({"body": {"inputs": "a " * count}}, {"url_path": "tokenize"})
        for count in (5, 50)
    )
    fine, error = dispatcher.dispatch([few, many], Meter())
    assert (fine.status, error.status) == (200, 413)
    assert read_json(error.body)["error"].startswith("The response has 52 tokens, too many")
