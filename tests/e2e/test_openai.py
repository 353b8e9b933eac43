"""OpenAI's own client with a model that generates texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import CLIENT, Question, ask_at_once, ask_json
from tests.e2e.clients import run_client

MESSAGES = [
    {"role": "system", "content": "Once upon a time"},
    {"role": "user", "content": "there was a little bear"},
]
PROMPT = "Once upon a time there was a little bear"
PROMPTS = ["Once upon a time", "There was a little bear"]
STREAM = {"messages": MESSAGES, "max_tokens": 60, "stream": True}


def generated(server: Server, prompts: list[str], count: int) -> list[str]:
    """Return the answers of the Hugging Face protocol."""
    parameters = {"max_new_tokens": count, "return_full_text": False}
    answers = ask_json(
        server, "/predictions/text_generation", {"inputs": prompts, "parameters": parameters}
    ).json()
    return [answer["generated_text"] for (answer,) in answers]


@pytest.fixture(scope="module")
def found(server: Server) -> Any:
    """The answers to the client."""
    return run_client(
        "openai_client",
        base_url=f"{server.inference_url}/models/text_generation/invoke?path=/v1/",
        messages=MESSAGES,
        prompts=PROMPTS,
        settings={"max_tokens": 20, "temperature": 0},
    )


def test_a_chat_and_its_stream_are_correct(server: Server, found: Any) -> None:
    [expected] = generated(server, [PROMPT], 20)
    assert found["chat"] == "".join(part or "" for part in found["parts"]) == expected
    assert found["usage"]["completion_tokens"] == 20
    assert found["usage"] == found["streamed_usage"]
    assert found["finish_reason"] == "length"


def test_log_probabilities_are_those_of_the_text(found: Any) -> None:
    content, biased = found["logprobs"]["content"], found["biased"]
    assert "".join(token["token"] for token in content) == found["chat"]
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in content)
    assert "".join(biased["logprobs"]["tokens"]) == biased["text"]
    assert len(biased["logprobs"]["top_logprobs"]) == len(biased["logprobs"]["tokens"]) > 0


def test_several_prompts_are_answered_correctly(server: Server, found: Any) -> None:
    assert found["texts"] == generated(server, PROMPTS, 20)


def test_a_response_and_its_stream_are_those_of_the_chat(found: Any) -> None:
    assert found["response"] == "".join(found["deltas"]) == found["chat"]
    assert found["response_usage"]["output_tokens"] == found["usage"]["completion_tokens"]
    assert found["response_usage"]["input_tokens"] == found["usage"]["prompt_tokens"]
    assert found["response_status"] == "incomplete"
    assert found["event_types"][0] == "response.created"
    assert found["event_types"][-1] == "response.incomplete"
    assert found["unsupported"]["status"] == 422
    assert found["unsupported"]["body"]["message"].startswith("previous_response_id cannot be")


def test_a_pydantic_model_is_parsed(found: Any) -> None:
    assert found["parsed"]


def test_a_tool_is_called_and_answered(found: Any) -> None:
    called = found["called"]
    assert (called["name"], called["parsed"], called["content"]) == ("Animal", True, None)
    assert called["finish_reason"] == "tool_calls"
    assert called["after"] in ("length", "stop")
    assert found["streamed_call"] == {"name": "Animal", "parsed": True}


def test_the_model_is_listed_and_a_mistake_explained(found: Any) -> None:
    assert found["models"] == ["text_generation"]
    assert found["mistake"]["status"] == 400
    assert found["mistake"]["body"]["message"].startswith("temperature is 9; ")


def test_a_stream_arrives_in_many_parts(server: Server) -> None:
    url = f"{server.inference_url}/predictions/text_generation/1.0/v1/chat/completions"
    with CLIENT.stream("POST", url, json=STREAM) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        parts = list(answer.iter_raw())
    assert len(parts) > 10
    assert parts[-1].endswith(b"data: [DONE]\n\n")


def test_streams_and_whole_answers_share_a_batch(server: Server) -> None:
    path = "/predictions/text_generation/1.0/v1/chat/completions"
    whole = json.dumps({**STREAM, "stream": False}).encode()
    plain = json.dumps({"inputs": PROMPT, "parameters": {"max_new_tokens": 5}}).encode()
    wrong = json.dumps({"messages": []}).encode()
    questions = [
        Question(path, json.dumps(STREAM).encode()),
        Question("/predictions/text_generation", plain),
        Question(path, whole),
        Question(path, wrong),
        Question(path, json.dumps({**STREAM, "max_tokens": 7}).encode()),
    ] * 2
    answers = ask_at_once(server, questions)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 400, 200] * 2
    for first in (0, 5):
        long, short, complete, _, seven = answers[first : first + 5]
        assert text_of(long.text) == complete.json()["choices"][0]["message"]["content"]
        assert text_of(long.text).startswith(text_of(seven.text))
        assert short.json()[0]["generated_text"].startswith(PROMPT)


def text_of(stream: str) -> str:
    """Return the joined text of a stream's events."""
    lines = [line.removeprefix("data: ") for line in stream.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    return "".join(delta.get("content", "") for delta in deltas)
