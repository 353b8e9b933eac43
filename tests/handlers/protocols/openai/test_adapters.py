"""LoRA adapters in OpenAI's API: `model` names one, as in vLLM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests import tiny, tiny_adapters
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.handlers.protocols.openai.test_openai import Sent, events
from tests.sentences import Sentence
from tests.serving import Served, call, read_json

NAMES = ("french", "dutch")
FEW = {"max_tokens": 6}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("adapters")
    base = tiny.write(folder / "base", "text_generation")
    (base / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    adapters = {
        name: str(tiny_adapters.write(folder / name, base, seed=seed))
        for seed, name in enumerate(NAMES)
    }
    return Served(base, "text_generation", adapters=adapters)


def ask(model: Served, path: str, body: Any = None) -> Any:
    answer = call(model, path, body)
    assert answer.status == 200, answer.body
    return read_json(answer.body)


def expected(model: Served, name: str | None) -> str:
    """Return the text of the Hugging Face protocol."""
    (answer,) = model.ask(CHAT, adapter_id=name, max_new_tokens=6, return_full_text=False)
    return str(answer["generated_text"])


@pytest.mark.parametrize("name", NAMES)
def test_the_model_of_a_body_is_the_adapter_that_answers(model: Served, name: str) -> None:
    answer = ask(model, "v1/chat/completions", {"model": name, "messages": CHAT, **FEW})
    text = answer["choices"][0]["message"]["content"]
    assert (answer["model"], text) == (name, expected(model, name))
    assert text != expected(model, None)


@pytest.mark.parametrize("given", [{}, {"model": "model"}, {"model": None}])
def test_the_name_of_the_model_and_no_name_are_the_model_itself(model: Served, given: Any) -> None:
    answer = ask(model, "v1/chat/completions", {"messages": CHAT, **given, **FEW})
    text = answer["choices"][0]["message"]["content"]
    assert (answer["model"], text) == ("model", expected(model, None))


def test_streams_and_responses_and_prompts_are_of_the_adapter_too(model: Served) -> None:
    name = NAMES[0]
    sent: Sent = []
    last = call(
        model, "chat/completions", {"model": name, "messages": CHAT, "stream": True, **FEW}, sent
    )
    chunks = events(*sent, last)
    assert {chunk["model"] for chunk in chunks} == {name}
    deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    assert "".join(deltas) == expected(model, name)
    response = ask(model, "responses", {"model": name, "input": CHAT, "max_output_tokens": 6})
    assert response["model"] == name
    assert response["output"][0]["content"][0]["text"] == expected(model, name)
    prompts = [
        ask(model, "completions", {"model": each, "prompt": "Ada", **FEW})["choices"][0]["text"]
        for each in ("model", *NAMES)
    ]
    assert len(set(prompts)) == len(prompts)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": CHAT}),
        ("completions", {"prompt": "Ada"}),
        ("responses", {"input": "Ada"}),
    ],
)
def test_an_unknown_name_is_not_found(model: Served, path: str, body: Any) -> None:
    answer = call(model, path, {**body, "model": "german"})
    assert answer.status == 404
    assert read_json(answer.body)["error"] == {
        "message": Sentence("german", "model", "french", "dutch"),
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


def test_without_adapters_any_name_is_the_model(served: Callable[..., Served]) -> None:
    body = {"model": "gpt-4", "prompt": "Ada", **FEW}
    answer = ask(served("text_generation"), "v1/completions", body)
    assert answer["model"] == "model"


def test_adapters_are_listed_with_the_model_as_their_parent(model: Served) -> None:
    listed = {each["id"]: each.get("parent") for each in ask(model, "v1/models")["data"]}
    assert listed == {"model": None, "french": "model", "dutch": "model"}
    french = ask(model, "v1/models/french")
    assert (french["id"], french["parent"], french["ready"]) == ("french", "model", True)
