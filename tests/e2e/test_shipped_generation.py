"""Text generation as the shipped YAML has it: the fastest format, with continuous batching."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import CLIENT, ask_json
from tests.e2e.clients import run_client
from tests.e2e.conftest import SHIPPED
from tests.serving import differences

pytestmark = pytest.mark.openvino

STATIC = "text_generation"
PROMPTS = [f"Once upon a time there was a little {name}" for name in ("fox", "bear", "cat", "hen")]


def answer(server: Server, path: str, prompt: str, **parameters: Any) -> Any:
    reply = ask_json(server, path, {"inputs": prompt, "parameters": parameters})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_it_is_the_fastest_format_of_this_machine(server: Server) -> None:
    assert "save_mode: auto is openvino, because it is the fastest for" in server.logs()


def streamed(server: Server, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the choice of each event of a stream of the shipped model."""
    url = f"{server.inference_url}/predictions/{SHIPPED}/{path}"
    with CLIENT.stream("POST", url, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line for line in response.iter_lines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]


def test_texts_side_by_side_are_those_of_generate(server: Server) -> None:
    def ask(model: str, prompt: str) -> Any:
        return answer(server, f"/predictions/{model}", prompt, max_new_tokens=24)

    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        found = list(threads.map(lambda prompt: ask(SHIPPED, prompt), PROMPTS))
    assert found == [ask(STATIC, prompt) for prompt in PROMPTS]


def test_a_stream_has_the_same_text(server: Server) -> None:
    body = {"messages": [{"role": "user", "content": PROMPTS[0]}], "max_tokens": 16}
    path = "1.0/v1/chat/completions"
    whole = ask_json(server, f"/predictions/{STATIC}/{path}", body).json()
    text = "".join(part["delta"].get("content", "") for part in streamed(server, path, body))
    assert text == whole["choices"][0]["message"]["content"]


def test_openai_s_client_gets_what_the_engine_lacks_from_the_checkpoint(server: Server) -> None:
    """`logit_bias` and `top_logprobs`, beside texts of the engine."""
    found, expected = (
        run_client(
            "openai_client",
            base_url=f"{server.inference_url}/predictions/{model}/1.0/v1",
            messages=[{"role": "user", "content": PROMPTS[0]}],
            prompts=PROMPTS[:2],
            settings={"max_tokens": 12, "temperature": 0},
        )
        for model in (SHIPPED, STATIC)
    )
    assert len(expected["logprobs"]["content"][0]["top_logprobs"]) == 2
    for name in ("chat", "texts", "logprobs", "biased", "usage"):
        assert not differences(found[name], expected[name], 1e-4), name
    assert found["mistake"]["status"] == 400


def test_a_stream_with_logit_bias_has_the_same_text(server: Server) -> None:
    body = {"prompt": PROMPTS[0], "max_tokens": 16, "logit_bias": {"5": -100}, "temperature": 0}
    path = "1.0/v1/completions"
    whole = ask_json(server, f"/predictions/{STATIC}/{path}", body).json()
    parts = [part["text"] for part in streamed(server, path, body)]
    assert len([part for part in parts if part]) > 1
    assert "".join(parts) == whole["choices"][0]["text"]


@pytest.mark.parametrize("method", ["feature_ablation", "input_x_gradient"])
def test_explanations_are_those_of_the_checkpoint(server: Server, method: str) -> None:
    explained = [
        answer(server, f"/explanations/{model}", PROMPTS[0], max_new_tokens=3, method=method)
        for model in (SHIPPED, STATIC)
    ]
    assert not differences(explained[0], explained[1], 1e-4)
