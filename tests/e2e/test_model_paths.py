"""The paths of TGI, vLLM and OpenAI's `responses` below a model's own, over a real server."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import CLIENT, Question, ask_at_once, ask_json
from tests.e2e.documents import EVENTS, parts
from tests.e2e.served import served_modes
from tests.e2e.test_openai import MESSAGES, PROMPT, generated

PROMPT_OF_STORY = "Once upon a time"
FEW = {"max_new_tokens": 20}
TEXT = "Ada lives in Paris."
every_mode = pytest.mark.parametrize("mode", served_modes())


def path(rest: str, mode: str = "text_generation") -> str:
    return f"/predictions/{mode}/1.0/{rest}"


def ask(server: Server, rest: str, body: Any, mode: str = "text_generation") -> Any:
    answer = ask_json(server, path(rest, mode), body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def get(server: Server, rest: str, mode: str) -> httpx.Response:
    return CLIENT.get(server.inference_url + path(rest, mode))


def streamed(server: Server, rest: str, body: Any) -> tuple[int, list[Any]]:
    """Return how many parts of a stream arrive, and the data of its events."""
    with CLIENT.stream("POST", server.inference_url + path(rest), json=body) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        sent = list(answer.iter_raw())
    return len(sent), parts(b"".join(sent).decode(), EVENTS)


def test_a_prompt_and_its_stream_are_continued(server: Server) -> None:
    [expected] = generated(server, [PROMPT_OF_STORY], 20)
    body = {"inputs": PROMPT_OF_STORY, "parameters": {**FEW, "details": True}}
    answer = ask(server, "generate", body)
    assert answer["generated_text"] == expected
    parts, found = streamed(server, "generate_stream", body)
    assert "".join(each["token"]["text"] for each in found) == expected
    assert found[-1]["generated_text"] == expected
    assert found[-1]["details"]["finish_reason"] == answer["details"]["finish_reason"] == "length"
    assert parts > 10


@every_mode
def test_every_model_answers_get_requests(server: Server, mode: str) -> None:
    health = get(server, "health", mode)
    assert (health.status_code, health.content) == (200, b"")
    info = get(server, "info", mode).json()
    assert (info["model_id"], info["max_client_batch_size"]) == (mode, 128)
    assert info["max_total_tokens"] >= info["max_input_tokens"] > 0


@every_mode
def test_every_tokenizer_answers(server: Server, mode: str) -> None:
    (tokens,) = ask(server, "tokenize", {"inputs": [TEXT]}, mode)
    prompt = ask(server, "tokenize", {"prompt": TEXT}, mode)
    assert prompt["tokens"] == [token["id"] for token in tokens]
    assert prompt["count"] == len(tokens)
    plain = ask(server, "tokenize", {"prompt": "ada", "add_special_tokens": False}, mode)
    assert ask(server, "detokenize", {"tokens": plain["tokens"]}, mode) == {"prompt": "ada"}


def test_a_chat_has_the_tokens_of_its_prompt(server: Server) -> None:
    chat = ask(server, "tokenize", {"messages": MESSAGES})
    assert chat == ask(server, "tokenize", {"prompt": PROMPT, "add_special_tokens": False})


def test_a_response_and_its_stream_are_correct(server: Server) -> None:
    [expected] = generated(server, [PROMPT], 20)
    body = {"input": MESSAGES, "max_output_tokens": 20}
    response = ask(server, "v1/responses", body)
    assert response["output"][0]["content"][0]["text"] == expected
    assert response["usage"]["output_tokens"] == 20
    parts, found = streamed(server, "v1/responses", {**body, "stream": True})
    assert "".join(each.get("delta", "") for each in found) == expected
    assert found[-1]["response"]["output"][0]["content"] == response["output"][0]["content"]
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    assert parts > 10


def test_requests_of_all_paths_share_a_batch(server: Server) -> None:
    prompt = {"inputs": PROMPT_OF_STORY, "parameters": FEW}
    sent: list[tuple[str, Any]] = [
        ("generate", prompt),
        ("generate_stream", prompt),
        ("tokenize", {"inputs": TEXT}),
        ("v1/responses", {"input": MESSAGES, "max_output_tokens": 5, "stream": True}),
        ("detokenize", {"tokens": [5, 6]}),
        ("generate", {"inputs": 5}),
        ("", {**prompt, "stream": True}),
        ("tokenize", {"prompt": ""}),
    ] * 2
    questions = [Question(path(rest), json.dumps(body).encode()) for rest, body in sent]
    together = ask_at_once(server, questions)
    assert [each.status_code for each in together] == [200, 200, 200, 200, 200, 400, 200, 400] * 2
    [expected] = generated(server, [PROMPT_OF_STORY], 20)
    for first in (0, 8):
        whole, stream, tokens, response, text, wrong, plain, empty = together[first : first + 8]
        assert whole.json()["generated_text"] == expected
        for each in (stream, plain):
            assert "".join(part["token"]["text"] for part in parts(each.text, EVENTS)) == expected
        assert [token["text"] for token in tokens.json()]
        assert parts(response.text, EVENTS)[-1]["response"]["usage"]["output_tokens"] == 5
        assert text.json()["prompt"]
        assert wrong.json() == {
            "error": "inputs must be a text, and is a number.",
            "error_type": "validation",
        }
        assert empty.json()["code"] == 400
