"""Clients and frameworks, as their users install them, with a model that generates texts."""

from __future__ import annotations

from typing import Any

import pytest

from hf_serve.scripts.serving.server import Server
from tests.e2e.clients import FRAMEWORKS, OLDER_CLIENTS, PYTHON, run_program
from tests.e2e.test_openai import MESSAGES, PROMPT, generated

TOKENS = 20
# The sentence of the error of a temperature of 9, which each program sends.
TOO_HOT = "temperature is 9; it should be less than or equal to 2"
# At the address of a model, its name and the key are not read.
NAMED = {"model": "m", "key": "none"}
TOO_LONG = "more than this model's 256; shorten one of them."


@pytest.fixture(scope="module")
def job(server: Server) -> dict[str, Any]:
    """What the programs are told."""
    url = f"{server.inference_url}/predictions/text_generation"
    return {
        "url": url,
        "versioned_url": f"{url}/1.0",
        "base_url": f"{server.inference_url}/models/text_generation/invoke?path=/v1/",
        "messages": MESSAGES,
        "prompt": PROMPT,
        "count": TOKENS,
    }


@pytest.fixture(scope="module")
def text(server: Server) -> str:
    """The answer to a plain request."""
    return generated(server, [PROMPT], TOKENS)[0]


def test_the_client_of_tgi(job: dict[str, Any], text: str) -> None:
    found = run_program(OLDER_CLIENTS, "text_generation_client", job)
    assert found["answer"]["generated_text"] == text
    assert found["answer"]["details"]["generated_tokens"] == TOKENS
    parts = [each["token"]["text"] for each in found["stream"]]
    assert "".join(parts) == found["stream"][-1]["generated_text"] == text
    assert found["stopped"]["generated_text"] == text.partition(".")[0]
    assert found["stopped"]["details"]["finish_reason"] == "stop_sequence"
    assert found["sampled"]["details"]["seed"] == 7
    assert [len(each) for each in found["sampled"]["details"]["top_tokens"]] == [2] * 5
    assert found["constrained"] in ("fox", "bear")
    assert found["chat"] == text
    assert found["asynchronous"] == [text, text]
    assert all(found[name].endswith(TOO_LONG) for name in ("error", "stream_error", "chat_error"))


def test_anthropics_client(job: dict[str, Any], text: str) -> None:
    system, *messages = MESSAGES
    told = {"url": job["versioned_url"], "system": system["content"], "messages": messages}
    found = run_program(PYTHON, "anthropic_client", {**job, **told, **NAMED})
    check_messages(found, text)


def test_instructor(job: dict[str, Any]) -> None:
    found = run_program(OLDER_CLIENTS, "instructor_client", job)
    for name, answer in found["answers"].items():
        assert answer["kind"] in ("fox", "bear")
        assert 0 <= answer["age"] <= 20
        assert found["streams"][name][-1] == answer
    assert TOO_HOT in found["error"]


@pytest.mark.nightly
def test_haystack(job: dict[str, Any], text: str) -> None:
    found = run_program(FRAMEWORKS, "haystack_client", job)
    check_chats(found, text)
    assert found["response"] == "".join(found["response_stream"]) == text
    assert found["called"] == ["animal"]


@pytest.mark.nightly
def test_langchain(job: dict[str, Any], text: str) -> None:
    found = run_program(FRAMEWORKS, "langchain_chat_client", job)
    check_chats(found, text)
    assert found["object"]
    assert found["called"] == ["Animal"]


@pytest.mark.nightly
def test_llama_index(job: dict[str, Any], text: str) -> None:
    found = run_program(OLDER_CLIENTS, "llama_index_chat_client", {**job, **NAMED})
    check_chats(found, text)
    assert found["asynchronous"] == text
    assert found["completion"] == "".join(found["completion_stream"]) == text
    assert found["object"] in ("fox", "bear")
    assert found["called"] == ["animal"]


@pytest.mark.nightly
def test_smolagents(job: dict[str, Any], text: str) -> None:
    found = run_program(FRAMEWORKS, "smolagents_client", job)
    check_chats(found, text)
    assert found["called"] == ["animal"]


@pytest.mark.nightly
def test_openais_agents(job: dict[str, Any], text: str) -> None:
    found = run_program(FRAMEWORKS, "openai_agents_client", job)
    assert found["called"] == ["ToolCallItem", "ToolCallOutputItem"]
    for model in ("chat", "responses"):
        answers = found[model]
        assert answers["answer"] == "".join(answers["stream"])
        assert answers["answer"].startswith(text)
        assert TOO_HOT in answers["error"]


@pytest.mark.nightly
def test_pydantic_ai(job: dict[str, Any], text: str) -> None:
    found = run_program(FRAMEWORKS, "pydantic_ai_client", job)
    check_chats(found, text)
    assert set(found["objects"]) <= {"fox", "bear"} and len(found["objects"]) == 2


@pytest.mark.nightly
def test_litellm(job: dict[str, Any], text: str) -> None:
    for answers in run_program(FRAMEWORKS, "litellm_client", job).values():
        assert answers["answer"] == "".join(part or "" for part in answers["stream"]) == text
        for name in ("error", "stream_error"):
            assert answers[name]["class"] == "BadRequestError"
            assert TOO_HOT in answers[name]["message"]
        # Its users have it try a model that takes longer texts.
        assert answers["too_long"]["class"] == "ContextWindowExceededError"


def check_messages(found: dict[str, Any], text: str) -> None:
    """Check what Anthropic's client got."""
    assert found["answer"] == "".join(found["stream"]) == found["streamed"] == text
    whole, streamed = found["usage"]
    assert whole == streamed and whole["output_tokens"] == TOKENS
    assert found["counted"] == whole["input_tokens"]
    assert found["stop_reason"] == "max_tokens" and found["object"]
    assert found["called"] == ["animal", "place"] and found["final"]
    assert found["error"]["type"] == "invalid_request_error"
    assert "temperature is 9; it should be less than or equal to 1" in found["error"]["message"]


def check_chats(found: dict[str, Any], text: str) -> None:
    """Check an answer, a stream and an error."""
    assert found["answer"] == "".join(part or "" for part in found["stream"]) == text
    assert TOO_HOT in found["error"]
