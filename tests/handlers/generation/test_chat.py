from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from handlers.errors import RequestTooLarge
from handlers.generation.chat import check_messages, prompt_of
from tests.sentences import Sentence, refused
from tests.serving import Served

TEMPLATE = (
    "{% if messages[0].role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who sings?"}]
PROMPT = "system: Be brief.\nuser: Who sings?\nassistant: "
FEW = {"max_new_tokens": 6}


@pytest.fixture
def model(served: Callable[..., Served], monkeypatch: Any) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    yield model


def test_a_chat_is_answered_as_the_prompt_of_its_template(model: Served) -> None:
    ((answer,), (same,)) = model.ask(CHAT, **FEW), model.ask(PROMPT, **FEW)
    assert answer["generated_text"][:2] == CHAT
    assert answer["generated_text"][2] == {
        "role": "assistant",
        "content": same["generated_text"].removeprefix(PROMPT),
    }


def test_the_new_message_is_returned_as_a_text(model: Served) -> None:
    (answer,) = model.ask(CHAT, return_full_text=False, **FEW)
    (same,) = model.ask(PROMPT, return_full_text=False, **FEW)
    assert answer == same


def test_parts_of_a_message_are_joined(model: Served) -> None:
    parts = [{"type": "text", "text": "Who "}, {"type": "refusal", "refusal": "sings?"}]
    chat = [CHAT[0], {"role": "user", "content": parts}]
    options = {"return_full_text": False, **FEW}
    assert model.ask(chat, **options) == model.ask(CHAT, **options)


def test_an_assistant_message_without_content_is_an_empty_text(model: Served) -> None:
    silent, empty = ([*CHAT, {"role": "assistant", "content": content}] for content in (None, ""))
    assert model.ask(silent, **FEW) == model.ask(empty, **FEW)


def test_chats_and_prompts_share_a_batch(model: Served) -> None:
    chat, prompt = ({"inputs": inputs, "parameters": FEW} for inputs in (CHAT, "Ada"))
    together = model.post(chat, prompt, chat)
    assert together == [model.post(each)[0] for each in (chat, prompt, chat)]


@pytest.mark.parametrize(
    ("messages", "status", "facts"),
    [
        ([{"role": "tool", "content": "x"}], 400, ["messages"]),
        ([{"role": "user"}], 400, ["messages[0].content"]),
        ([{"role": 1, "content": "x"}], 400, ["messages[0].role"]),
        ([{"role": "", "content": "x"}], 400, ["messages[0].role"]),
        ([{"role": "\ud83d", "content": "x"}], 400, ["messages[0].role"]),
        ([{"role": "x" * 200_001, "content": "x"}], 413, ["messages[0].role", "200,001"]),
        ([{"role": "x" * 65, "content": "x"}], 413, ["messages[0].role", "65"]),
        ([{"role": "user", "content": "x"}] * 1001, 413, ["messages", "1,001"]),
        ([{"role": "user", "content": [{"type": "image_url"}]}], 400, ["messages[0].content"]),
        ([{"role": "user", "content": " "}], 400, ["messages"]),
        ([{"role": "user", "content": "x" * 200_001}], 413, ["messages", "200,001"]),
    ],
)
def test_a_chat_of_another_shape_is_refused(
    model: Served, messages: Any, status: int, facts: list[str]
) -> None:
    found, text = model.refuse(messages)
    assert found == status and text == Sentence(*facts)


def test_a_chat_is_refused_by_a_model_without_a_template(served: Callable[..., Served]) -> None:
    status, text = served("text_generation", family="GPT2").refuse(CHAT)
    assert (status, text) == (422, Sentence("chat template"))


def test_the_prompt_of_a_chat_has_at_most_the_characters_of_a_text(model: Served) -> None:
    tokenizer, messages = model.engine.task.checkpoint.tokenizer, check_messages(CHAT, 100)
    assert prompt_of(messages, tokenizer, len(PROMPT)) == PROMPT
    with refused(RequestTooLarge, 46):
        prompt_of(messages, tokenizer, len(PROMPT) - 1)
