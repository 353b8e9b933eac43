from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.serving import Served, explanation_of

VARIES = {"id", "created"}
FEW = {"max_tokens": 3}
PARAMETERS = {"max_new_tokens": 3}


@pytest.fixture
def model(served: Callable[..., Served], monkeypatch: Any) -> Served:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    return model


def reply_to(model: Served, http_request: Any) -> tuple[int, Any]:
    """Return status and answer, without the keys that vary."""
    ((status, answer),) = model.post(http_request)
    return status, {key: value for key, value in answer.items() if key not in VARIES}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/chat/completions", {"messages": CHAT, **FEW, "temperature": 0, "stream": False}),
        ("v1/chat/completions", {"messages": CHAT, "model": "tgi", "max_completion_tokens": 2}),
        ("v1/completions", {"prompt": "Ada", **FEW}),
        ("v1/completions", {"prompt": ["Ada", "Nina"], "n": 1, **FEW}),
        ("v1/chat/completions", {"messages": CHAT, "max_tokens": 0}),
    ],
)
def test_openais_body_is_answered_as_on_its_path(model: Served, path: str, body: Any) -> None:
    assert reply_to(model, body) == reply_to(model, HttpRequest({"body": body}, {"url_path": path}))


def test_a_stream_has_openais_events(model: Served) -> None:
    http_requests = [HttpRequest({"body": {"messages": CHAT, **FEW, "stream": True}}, {})]
    (answer,) = model.dispatcher.dispatch(http_requests, Meter())
    assert answer.content_type == "text/event-stream" and answer.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("content", [{"messages": CHAT}, {"prompt": "Ada"}])
def test_messages_or_a_prompt_without_openais_settings_are_inputs(
    model: Served, content: Any
) -> None:
    (inputs,) = content.values()
    ((_, answer),) = model.post({**content, "parameters": PARAMETERS})
    assert answer == model.ask(inputs, **PARAMETERS)


def test_a_body_of_two_kinds_is_refused(model: Served) -> None:
    ((status, answer),) = model.post({"prompt": "Ada", "parameters": PARAMETERS, **FEW})
    assert (status, "'max_tokens'" in answer["message"]) == (400, True)


def test_only_models_that_generate_texts_accept_openais_bodies(
    served: Callable[..., Served],
) -> None:
    ((status, answer),) = served("sequence_classification").post({"prompt": "Ada", **FEW})
    assert (status, answer["code"]) == (400, 400)


def test_an_explanation_of_openais_body_is_refused(model: Served) -> None:
    ((status, answer),) = model.post(explanation_of({"prompt": "Ada", **FEW}))
    assert (status, answer["code"]) == (400, 400)
