"""vLLM's paths to a tokenizer; tests/e2e has tests with a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hf_serve.handlers.http.request import HttpRequest
from tests.handlers.generation.test_chat import CHAT, PROMPT, TEMPLATE
from tests.modes import each_mode
from tests.samples import FINE, text_modes
from tests.sentences import Sentence
from tests.serving import Served

Load = Callable[..., Served]
every_mode = pytest.mark.parametrize("mode", each_mode(text_modes()))


@pytest.fixture
def model(served: Load, monkeypatch: Any) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    yield model


def send(model: Served, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    ((status, answer),) = model.post(HttpRequest({"body": body}, {"url_path": path, **headers}))
    return status, answer


def ask(model: Served, path: str, /, **body: Any) -> Any:
    status, answer = send(model, path, body)
    assert status == 200, answer
    return answer


@every_mode
def test_a_prompt_gets_its_tokens_and_they_get_the_prompt(served: Load, mode: str) -> None:
    model = served(mode)
    answer = ask(model, "tokenize", prompt=FINE, model="any")
    ids = model.engine.task.checkpoint.tokenizer(FINE)["input_ids"]
    assert answer == {"tokens": ids, "count": len(ids), "max_model_len": 128}
    plain = ask(model, "tokenize", prompt="nina sings", add_special_tokens=False)["tokens"]
    assert ask(model, "detokenize", tokens=plain, model="any") == {"prompt": "nina sings"}


def test_messages_get_the_tokens_of_their_prompt(model: Served) -> None:
    same = ask(model, "tokenize", prompt=PROMPT)
    assert ask(model, "tokenize", messages=CHAT) == same
    without = ask(model, "tokenize", messages=CHAT, add_generation_prompt=False)
    assert without["count"] < same["count"]


def test_settings_without_effect_are_ignored(model: Served) -> None:
    usual: dict[str, Any] = {
        "return_token_strs": False,
        "chat_template": None,
        "tools": None,
        "user": "me",
    }
    same = ask(model, "tokenize", messages=CHAT)
    assert ask(model, "tokenize", messages=CHAT, continue_final_message=False, **usual) == same


def test_the_longest_row_is_that_of_a_prompt_and_its_new_text(served: Load) -> None:
    model = served("text_generation", max_total_tokens=99)
    assert ask(model, "tokenize", prompt="Ada")["max_model_len"] == 99


@pytest.mark.parametrize(
    ("path", "body", "status", "facts"),
    [
        ("tokenize", {}, 400, ["body"]),
        ("tokenize", {"prompt": "a", "messages": CHAT}, 400, ["prompt"]),
        ("tokenize", {"prompt": 5}, 400, ["prompt", "5"]),
        ("tokenize", {"prompt": ""}, 400, ["inputs"]),
        ("tokenize", {"messages": []}, 400, ["messages"]),
        ("tokenize", {"messages": [1]}, 400, ["messages.0", "1"]),
        ("tokenize", {"messages": [{"role": "user"}]}, 400, ["messages[0].content"]),
        ("tokenize", {"messages": CHAT * 501}, 413, ["messages", "1002"]),
        ("tokenize", {"prompt": "a", "add_special_tokens": "no"}, 400, ["add_special_tokens"]),
        ("tokenize", {"messages": CHAT, "chat_template": "{{1}}"}, 422, ["chat_template"]),
        ("tokenize", {"messages": CHAT, "tools": [{}]}, 400, ["tools.0.type"]),
        ("tokenize", {"prompt": "a", "return_token_strs": True}, 422, ["return_token_strs"]),
        ("tokenize", ["a"], 400, ["body"]),
        ("tokenize", b"{", 400, ["body"]),
        ("detokenize", {}, 400, ["tokens"]),
        ("detokenize", {"tokens": []}, 400, ["prompt"]),
        ("detokenize", {"tokens": ["a"]}, 400, ["a", "tokens.0"]),
        ("detokenize", {"tokens": [True]}, 400, ["tokens.0"]),
        ("detokenize", {"tokens": 5}, 400, ["tokens", "5"]),
        ("detokenize", {"tokens": [9999]}, 400, ["prompt"]),
        ("detokenize", {"tokens": [5] * 200_001}, 413, ["200,001"]),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(
    model: Served, path: str, body: Any, status: int, facts: list[str]
) -> None:
    found, error = send(model, path, body)
    assert (found, error["code"]) == (status, status)
    assert error["message"] == Sentence(*facts)


@pytest.mark.parametrize("path", ["tokenize", "detokenize"])
def test_explanations_are_refused(model: Served, path: str) -> None:
    status, error = send(model, path, {"prompt": "a", "tokens": [5]}, explain="True")
    assert (status, error["message"]) == (
        422,
        Sentence(path),
    )


def test_messages_are_refused_without_a_chat_template(served: Load) -> None:
    status, error = send(served("token_classification"), "tokenize", {"messages": CHAT})
    assert (status, "no chat template" in error["message"]) == (422, True)
