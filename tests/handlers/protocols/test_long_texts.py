"""A text that is too long, by each route: the status, the code and the words that clients look for.

LiteLLM, LangChain and others send less, or ask another model, where they recognise the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.http.request import HttpRequest
from tests.e2e.clients import FRAMEWORKS, run_program
from tests.handlers.generation.test_chat import TEMPLATE
from tests.http_front import front
from tests.sentences import Sentence
from tests.serving import Served

Load = Callable[..., Served]
GENERATION, EMBEDDING = "text_generation", "sentence_embedding"
RANKING, SPEECH = "sentence_ranking", "text_to_speech"
# More tokens than the positions of the tiny models, and more characters than they take here.
TOKENS, CHARACTERS = "Ada sings. " * 100, "a" * 4001
TENSOR = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [TOKENS]}


def chat(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


@pytest.fixture
def load(served: Load, monkeypatch: pytest.MonkeyPatch) -> Load:
    def loaded(mode: str) -> Served:
        own: dict[str, Any] = {"family": "GPT2"} if mode == GENERATION else {}
        refuses = {} if mode == SPEECH else {"truncation": False}
        model = served(mode, max_characters=4000, **own, **refuses)
        if mode == GENERATION:
            tokenizer = model.engine.task.checkpoint.tokenizer
            monkeypatch.setattr(tokenizer, "chat_template", TEMPLATE)
        return model

    return loaded


def post(model: Served, path: str, body: Any) -> tuple[int, Any]:
    headers = {"url_path": path, "Content-Type": "application/json"}
    ((status, answer),) = model.post(HttpRequest({"body": body}, headers))
    return status, answer


@pytest.mark.parametrize(
    ("mode", "path", "body", "param"),
    [
        (GENERATION, "v1/chat/completions", chat(TOKENS), "messages"),
        (GENERATION, "v1/chat/completions", chat(CHARACTERS), "messages"),
        (GENERATION, "v1/chat/completions", {**chat(TOKENS), "stream": True}, "messages"),
        (GENERATION, "v1/chat/completions", {**chat("Ada"), "max_tokens": 999}, "messages"),
        (GENERATION, "v1/completions", {"prompt": TOKENS}, "prompt"),
        (GENERATION, "v1/completions", {"prompt": ["Ada", TOKENS]}, "prompt"),
        (GENERATION, "v1/completions", {"prompt": [5] * 999}, "prompt"),
        (GENERATION, "v1/responses", {"input": TOKENS}, "input"),
        (GENERATION, "v1/responses", {"input": "Ada", "max_output_tokens": 999}, "input"),
        (GENERATION, "", {**chat(TOKENS), "max_tokens": 5}, "messages"),
        (EMBEDDING, "v1/embeddings", {"input": TOKENS}, "input"),
        (EMBEDDING, "v1/embeddings", {"input": ["Ada", CHARACTERS]}, "input"),
        (EMBEDDING, "v1/embeddings", {"input": [5] * 999}, "input"),
        (EMBEDDING, "", {"input": TOKENS}, "input"),
        (SPEECH, "v1/audio/speech", {"input": CHARACTERS, "voice": "a"}, "input"),
    ],
)
def test_openais_clients_recognise_a_text_that_is_too_long(
    load: Load, mode: str, path: str, body: Any, param: str
) -> None:
    model = load(mode)
    status, answer = post(model, path, body)
    error = answer["error"]
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)
    limits = model.engine.task.limits
    limit = limits.max_total_tokens or limits.max_length
    # Clients look for these words, and read the number after them.
    assert f"This model's maximum context length is {limit} tokens" in error["message"]
    assert error["message"] == Sentence("maximum context length", "context_length_exceeded")


@pytest.mark.parametrize(
    ("mode", "path", "body", "status", "words"),
    [
        (GENERATION, "", {"inputs": TOKENS}, 413, {"code": 413}),
        (GENERATION, "generate", {"inputs": TOKENS}, 422, {"error_type": "validation"}),
        (GENERATION, "", {"inputs": [TENSOR]}, 413, {}),
        (EMBEDDING, "embed", {"inputs": TOKENS}, 413, {"error_type": "Validation"}),
        (RANKING, "rerank", {"query": "a", "texts": [CHARACTERS]}, 413, {}),
    ],
)
def test_other_clients_get_the_status_that_theirs_have(
    load: Load, mode: str, path: str, body: Any, status: int, words: dict[str, Any]
) -> None:
    found, answer = post(load(mode), path, body)
    assert found == status
    assert words.items() <= answer.items()


@pytest.mark.parametrize(
    ("mode", "path", "body"),
    [
        (EMBEDDING, "v1/embed", {"texts": ["Ada", TOKENS], "truncate": "NONE"}),
        (EMBEDDING, "v2/embed", {"texts": [CHARACTERS]}),
        (RANKING, "v2/rerank", {"query": "Ada", "documents": [CHARACTERS]}),
        (RANKING, "v1/rerank", {"query": "Ada", "documents": [CHARACTERS]}),
    ],
)
def test_coheres_clients_recognise_a_text_that_is_too_long(
    load: Load, mode: str, path: str, body: Any
) -> None:
    status, answer = post(load(mode), path, body)
    assert status == 400
    assert answer["message"] == Sentence("too many tokens")


def test_a_list_or_a_name_that_is_too_long_is_no_long_text(load: Load) -> None:
    messages = [{"role": "r" * 999, "content": "Ada"}]
    for path, body in (
        ("v1/completions", {"prompt": ["a"] * 129}),
        ("v1/chat/completions", {"messages": messages}),
    ):
        status, answer = post(load(GENERATION), path, body)
        assert (status, answer["error"]["code"]) == (413, None)


@pytest.mark.nightly  # A process with LangChain starts.
def test_clients_raise_their_own_error_for_a_text_that_is_too_long(load: Load) -> None:
    with front({"m": load(GENERATION)}) as url:
        job = {"base_url": f"{url}/m/1.0/v1", "fine": "Ada", "long": TOKENS, "many": 999}
        found = run_program(FRAMEWORKS, "long_text_client", job)
    whole = ("chat", "stream", "completion", "response")
    expected = {
        **dict.fromkeys(whole, "context_length_exceeded"),
        "langchain": True,
        "langchain_stream": True,
    }
    assert found == {"long": expected, "many": expected}
