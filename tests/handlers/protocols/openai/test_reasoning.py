"""Thoughts before an answer: whole and streamed, turned off, and before a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.handlers.protocols.openai.test_openai import Sent, ask, events
from tests.scripted import write
from tests.sentences import Sentence
from tests.serving import Served, call, read_json

CHAT = [{"role": "user", "content": "Is"}]
TURNS = "{% for m in messages %}{{ m.content }}{% endfor %}"
# Templates with the texts of families, some of which begin or end the thoughts themselves.
THINKS = "{% set closing = '</think>' %}" + TURNS
BEGUN = THINKS + "<think>\n"
SWITCHED = (
    THINKS + "{% if not (enable_thinking | default(true)) %}<think>\n\n</think>\n\n{% endif %}"
)
MISTRAL = "{% set closing = '[/THINK]' %}" + TURNS
GRANITE = "{% set form = 'Here is my thought process: Here is my response:' %}" + TURNS
HARMONY = "{% set form = '<|channel|>analysis<|message|><|end|>' %}" + TURNS
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["fox"]}},
    "required": ["name"],
    "additionalProperties": False,
}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}


@pytest.fixture
def model(served: Callable[..., Served]) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    tokenizer = model.engine.task.checkpoint.tokenizer
    template = tokenizer.chat_template
    yield model
    tokenizer.chat_template = template


def says(model: Served, monkeypatch: Any, template: str, text: str) -> None:
    """Give a model a chat template, and let it write a text."""
    model.engine.task.checkpoint.tokenizer.chat_template = template
    write(model, text, monkeypatch)


def message_of(model: Served, **given: Any) -> Any:
    """Return the message of a chat and its usage."""
    answer = ask(model, "v1/chat/completions", messages=CHAT, **given)
    return answer["choices"][0]["message"], answer["usage"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (THINKS, "<think>\nHm so.\n</think>\n\nYes."),
        (BEGUN, "Hm so.\n</think>\n\nYes."),
        (BEGUN, "<think>\nHm so.</think>Yes."),
        (MISTRAL, "[THINK]Hm so.[/THINK]Yes."),
        (GRANITE, "Here is my thought process: Hm so. Here is my response: Yes."),
        (
            HARMONY,
            "<|channel|>analysis<|message|>Hm so.<|end|><|start|>assistant"
            "<|channel|>final<|message|>Yes.",
        ),
    ],
)
def test_thoughts_come_beside_the_answer_whole_and_streamed(
    model: Served, monkeypatch: Any, template: str, text: str
) -> None:
    says(model, monkeypatch, template, text)
    message, usage = message_of(model)
    assert message == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": "Hm so.",
        "reasoning": "Hm so.",
    }
    counted = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 4 <= counted < usage["completion_tokens"]
    sent: Sent = []
    body = {"messages": CHAT, "stream": True}
    last = call(model, "v1/chat/completions", body, sent)
    deltas = [part["choices"][0]["delta"] for part in events(*sent, last)]
    for key in ("reasoning_content", "reasoning"):
        assert "".join(delta.get(key, "") for delta in deltas) == "Hm so."
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."
    assert [delta for delta in deltas if "role" in delta] == deltas[:1]
    assert sum("reasoning" in delta for delta in deltas) > 1


def test_thoughts_that_are_cut_are_no_answer(model: Served, monkeypatch: Any) -> None:
    says(model, monkeypatch, BEGUN, "Hm so. And then, ")
    message, usage = message_of(model, max_tokens=7)
    assert message["content"] == "" and "Hm so.".startswith(message["reasoning"][:3])
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 7}


def test_thoughts_may_be_left_out_of_the_response(model: Served, monkeypatch: Any) -> None:
    says(model, monkeypatch, BEGUN, "Hm so.</think>Yes.")
    message, usage = message_of(model, include_reasoning=False)
    assert message == {"role": "assistant", "content": "Yes."}
    assert usage["completion_tokens_details"]["reasoning_tokens"] > 0
    sent: Sent = []
    body = {"messages": CHAT, "stream": True, "include_reasoning": False}
    last = call(model, "v1/chat/completions", body, sent)
    deltas = [part["choices"][0]["delta"] for part in events(*sent, last)]
    assert not any("reasoning" in delta for delta in deltas)
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."


@pytest.mark.parametrize(
    ("given", "text", "content"),
    [
        ({"chat_template_kwargs": {"enable_thinking": False}}, "Yes.", "Yes."),
        ({"reasoning_effort": "none"}, "</think>", "</think>"),
        ({"reasoning_effort": "high"}, "<think>Hm.</think>Yes.", "Yes."),
    ],
)
def test_thoughts_are_turned_off(
    model: Served, monkeypatch: Any, given: Any, text: str, content: str
) -> None:
    says(model, monkeypatch, SWITCHED, text)
    message, _ = message_of(model, **given)
    assert message["content"] == content
    assert ("reasoning" in message) is (given.get("reasoning_effort") == "high")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<|channel|>final<|message|>Yes.", "Yes."),
        ('<|channel|>final <|constrain|>json<|message|>{"a": "<b>"}', '{"a": "<b>"}'),
        (
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
            "<|channel|>final<|message|>Yes.",
            "I look.\nYes.",
        ),
        ("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>", "I look."),
    ],
)
@pytest.mark.parametrize(
    "thoughts", ["", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"]
)
def test_the_texts_before_an_answer_of_gpt_oss_are_none_of_it(
    model: Served, monkeypatch: Any, thoughts: str, text: str, content: str
) -> None:
    says(model, monkeypatch, HARMONY, thoughts + text)
    message, _ = message_of(model)
    assert (message["content"], message.get("reasoning", "")) == (content, thoughts and "Hm.")
    sent: Sent = []
    last = call(model, "v1/chat/completions", {"messages": CHAT, "stream": True}, sent)
    deltas = [part["choices"][0]["delta"] for part in events(*sent, last)]
    assert "".join(delta.get("content", "") for delta in deltas) == content


HUNYUAN = "<｜hy_place▁holder▁no▁3｜>" + SWITCHED


@pytest.mark.parametrize("thinks", [True, False])
def test_the_texts_around_an_answer_are_none_of_it(
    model: Served, monkeypatch: Any, thinks: bool
) -> None:
    answer = "<answer>\nYes.\n</answer>"
    says(model, monkeypatch, HUNYUAN, f"<think>\nHm.\n</think>\n{answer}" if thinks else answer)
    given = {"chat_template_kwargs": {"enable_thinking": thinks}}
    message, _ = message_of(model, **given)
    assert (message["content"], message.get("reasoning")) == ("Yes.", "Hm." if thinks else None)
    sent: Sent = []
    last = call(model, "v1/chat/completions", {"messages": CHAT, "stream": True, **given}, sent)
    deltas = [part["choices"][0]["delta"] for part in events(*sent, last)]
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."


@pytest.mark.parametrize(
    ("template", "thoughts"),
    [(THINKS, ""), (THINKS, "<think>A {brace}.</think>\n\n"), (BEGUN, "A {brace}.</think>\n\n")],
)
def test_a_grammar_begins_after_the_thoughts(
    model: Served, monkeypatch: Any, template: str, thoughts: str
) -> None:
    says(model, monkeypatch, template, thoughts + '{"name": "fox"}')
    message, _ = message_of(model, response_format=AS_SCHEMA)
    assert json.loads(message["content"]) == {"name": "fox"}
    assert message.get("reasoning") == ("A {brace}." if thoughts else None)


def test_a_limit_is_refused_where_it_cannot_be_kept(model: Served) -> None:
    for template, facts in ((TURNS, ["thinking_token_budget", "thoughts"]), (GRANITE, ["several"])):
        model.engine.task.checkpoint.tokenizer.chat_template = template
        body = {"messages": CHAT, "thinking_token_budget": 3}
        answer = call(model, "v1/chat/completions", body)
        message = read_json(answer.body)["error"]["message"]
        assert (answer.status, message) == (422, Sentence("thinking_token_budget", *facts[1:]))
