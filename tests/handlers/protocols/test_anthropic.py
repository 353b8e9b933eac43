"""Anthropic's Messages as in its reference; tests/e2e has tests with its own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hf_serve.handlers.http.response import HttpResponse
from tests import serving
from tests.handlers.generation.test_chat import WITH_TOOLS
from tests.images import TEXTS
from tests.malformed import with_others
from tests.modes.image_text_to_text import chat_about
from tests.scripted import write
from tests.sentences import Sentence
from tests.serving import Served, read_json

THINKING = "{% if enable_thinking %}Think, {{ reasoning_effort }}. {% endif %}" + WITH_TOOLS
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["fox"]}},
    "required": ["name"],
    "additionalProperties": False,
}
LOOK = {"name": "look", "description": "Looks.", "input_schema": SCHEMA, "strict": True}
WAIT = {"name": "wait", "input_schema": {"type": "object"}, "type": "custom"}
USER = {"role": "user", "content": "Who sings?"}
CHAT: dict[str, Any] = {"messages": [USER], "system": "Be brief.", "max_tokens": 6}
PNG = {"type": "base64", "media_type": "image/png", "data": "…"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"name": "fox"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "A fox."}
Sent = list[HttpResponse]


@pytest.fixture
def model(served: Callable[..., Served], monkeypatch: Any) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", THINKING)
    yield model


def call(
    model: Served, body: Any, sent: Sent | None = None, path: str = "v1/messages", **more: str
) -> HttpResponse:
    return serving.call(model, path, body, sent, **more)


def ask(model: Served, path: str = "v1/messages", /, **body: Any) -> Any:
    answer = call(model, body, path=path)
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.body
    return read_json(answer.body)


def text_of(message: Any) -> str:
    ((block,), head) = message["content"], (message["type"], message["role"])
    assert (head, block["type"]) == (("message", "assistant"), "text")
    return str(block["text"])


def same_chat(model: Served, messages: list[Any], **more: Any) -> str:
    """Return the answer to a chat in transformers' form."""
    parameters = {"max_new_tokens": 6, "return_full_text": False, **more}
    (same,) = model.ask(messages, **parameters)
    return str(same["generated_text"])


def events(*answers: HttpResponse) -> list[Any]:
    """Return the data of the events of a stream; each one's name is its type."""
    text = b"".join(answer.body for answer in answers).decode()
    assert {answer.content_type for answer in answers} == {"text/event-stream"}
    *blocks, end = text.split("\n\n")
    assert end == ""
    found = [json.loads(block.partition("\ndata: ")[2]) for block in blocks]
    assert [block.partition("\n")[0] for block in blocks] == [f"event: {e['type']}" for e in found]
    return found


def test_a_chat_gets_the_assistants_message(model: Served) -> None:
    message = ask(model, model="claude", **CHAT)
    messages = [{"role": "system", "content": "Be brief."}, USER]
    assert text_of(message) == same_chat(model, messages)
    assert message["id"].startswith("msg_") and message["model"] == "model"
    assert (message["stop_reason"], message["stop_sequence"]) == ("max_tokens", None)
    assert message["usage"]["output_tokens"] == 6
    counted = ask(model, "v1/messages/count_tokens", messages=[USER], system="Be brief.")
    assert counted == {"input_tokens": message["usage"]["input_tokens"]}


def test_an_empty_system_is_none(model: Served) -> None:
    without, empty = (
        ask(model, "v1/messages/count_tokens", messages=[USER], **given)
        for given in ({}, {"system": ""})
    )
    assert without == empty


def test_a_text_that_ends_by_itself_ends_the_turn(model: Served, monkeypatch: Any) -> None:
    task: Any = model.engine.task
    monkeypatch.setattr(
        task.generation_config, "eos_token_id", list(range(task.checkpoint.vocab_size))
    )
    assert ask(model, **CHAT)["stop_reason"] == "end_turn"


def test_the_stop_sequence_that_ended_a_text_is_named(model: Served) -> None:
    text = text_of(ask(model, **{**CHAT, "max_tokens": 20}))
    stop = text[len(text) // 2]
    message = ask(model, stop_sequences=["never", stop], **{**CHAT, "max_tokens": 20})
    assert text_of(message) == text.partition(stop)[0]
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", stop)


@pytest.mark.parametrize(
    ("content", "same"),
    [
        ([{"type": "text", "text": "Who "}, {"type": "text", "text": "sings?"}], [USER]),
        ([RESULT], [{"role": "tool", "content": "A fox.", "tool_call_id": "toolu_1"}]),
        (
            [
                {**RESULT, "content": [{"type": "text", "text": "A fox."}]},
                {"type": "text", "text": "?"},
            ],
            [
                {"role": "tool", "content": "A fox.", "tool_call_id": "toolu_1"},
                {"role": "user", "content": "?"},
            ],
        ),
        (
            [{"type": "text", "text": "!"}, {**RESULT, "content": None, "is_error": True}],
            [
                {"role": "user", "content": "!"},
                {"role": "tool", "content": "", "tool_call_id": "toolu_1"},
            ],
        ),
    ],
)
def test_blocks_become_the_messages_of_the_template(
    model: Served, content: Any, same: list[Any]
) -> None:
    thoughts = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    redacted = [{"type": "redacted_thinking", "data": "…"}]
    assistant = [*thoughts, *redacted, {"type": "text", "text": "Look."}, CALL]
    messages = [USER, {"role": "assistant", "content": assistant}]
    function = {"name": "look", "arguments": {"name": "fox"}}
    turn = {"role": "assistant", "content": "Look.", "tool_calls": [{"function": function}]}
    message = ask(model, messages=[*messages, {"role": "user", "content": content}], max_tokens=6)
    assert text_of(message) == same_chat(model, [USER, turn, *same])


@pytest.mark.parametrize("content", [[], ""])
def test_an_empty_message_of_the_assistant_at_the_end_is_none(model: Served, content: Any) -> None:
    body = {**CHAT, "messages": [USER, {"role": "assistant", "content": content}]}
    assert text_of(ask(model, **body)) == text_of(ask(model, **CHAT))


@pytest.mark.parametrize(
    "edits", [[], [{"type": "clear_thinking_20251015", "keep": "all"}]], ids=["none", "keeps all"]
)
def test_a_management_of_the_context_that_clears_nothing_is_taken(
    model: Served, edits: Any
) -> None:
    given = {**CHAT, "context_management": {"edits": edits}}
    assert text_of(ask(model, **given)) == text_of(ask(model, **CHAT))


def test_an_assistants_message_at_the_end_is_continued(model: Served) -> None:
    messages = [USER, {"role": "assistant", "content": "Nina"}]
    whole = same_chat(model, messages, continue_final_message=True)
    assert text_of(ask(model, messages=messages, max_tokens=6)) == whole
    counted = ask(model, "v1/messages/count_tokens", messages=messages)
    assert counted == {
        "input_tokens": len(
            ask(model, "tokenize", messages=messages, continue_final_message=True)["tokens"]
        )
    }


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({}, {"enable_thinking": False}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        ({"thinking": {"type": "enabled"}}, {"enable_thinking": True}),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            {"enable_thinking": True, "reasoning_effort": "high"},
        ),
        ({"chat_template_kwargs": {"enable_thinking": True}}, {"enable_thinking": True}),
    ],
)
def test_a_request_asks_for_thinking(model: Served, given: Any, arguments: Any) -> None:
    (prompt,) = (ask(model, "tokenize", messages=[USER], chat_template_kwargs=arguments),)
    message = ask(model, messages=[USER], max_tokens=6, **given)
    assert message["usage"]["input_tokens"] == prompt["count"]


def test_a_template_with_another_name_for_thinking_gets_it(model: Served, monkeypatch: Any) -> None:
    template = THINKING.replace("enable_thinking", "thinking")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", template)
    kinds = ("enabled", "adaptive", "disabled")
    tokens = {
        kind: ask(model, **CHAT, thinking={"type": kind})["usage"]["input_tokens"] for kind in kinds
    }
    assert tokens["enabled"] == tokens["adaptive"] > tokens["disabled"]


WRITTEN = """<think>
Hm so.
</think>

Yes.<tool_call>
{"name": "look", "arguments": {"name": "fox"}}
</tool_call>"""


@pytest.mark.parametrize("display", ["summarized", "omitted", "updates", None])
def test_thoughts_text_and_calls_are_blocks_whole_and_streamed(
    model: Served, monkeypatch: Any, display: str | None
) -> None:
    tokenizer = model.engine.task.checkpoint.tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", "{% set end = '</think>' %}" + WITH_TOOLS)
    write(model, WRITTEN, monkeypatch)
    thinking = {"type": "enabled", "display": display}
    body = {"messages": [USER], "max_tokens": 100, "tools": [LOOK], "thinking": thinking}
    message = ask(model, **body)
    kinds = ["thinking", "text", "tool_use"][display == "omitted" :]
    assert [block["type"] for block in message["content"]] == kinds
    assert message["usage"]["output_tokens_details"]["thinking_tokens"] > 3
    assert message["stop_reason"] == "tool_use"
    last = call(model, {**body, "stream": True}, sent := Sent())
    found = events(*sent, last)
    assert found[-2]["usage"] == message["usage"]
    starts = [each for each in found if each["type"] == "content_block_start"]
    stops = [each["index"] for each in found if each["type"] == "content_block_stop"]
    assert [each["content_block"]["type"] for each in starts] == kinds
    assert [each["index"] for each in starts] == stops == list(range(len(kinds)))
    whole = {"thinking": "Hm so.", "text": "Yes.", "partial_json": '{"name":"fox"}'}
    shown = {key: text for key, text in whole.items() if key != "thinking" or display != "omitted"}
    deltas = [each["delta"] for each in found if each["type"] == "content_block_delta"]
    assert {key: "".join(each.get(key, "") for each in deltas) for key in whole} == {
        **dict.fromkeys(whole, ""),
        **shown,
    }
    blocks = {block["type"]: block for block in message["content"]}
    assert blocks.get("thinking", {}).get("thinking") == shown.get("thinking")
    assert (blocks["text"]["text"], blocks["tool_use"]["input"]) == ("Yes.", {"name": "fox"})


def test_a_budget_is_refused_where_a_model_has_no_thoughts(model: Served) -> None:
    answer = call(model, {**CHAT, "thinking": {"type": "enabled", "budget_tokens": 4}})
    message = read_json(answer.body)["error"]["message"]
    assert (answer.status, message) == (422, Sentence("thinking.budget_tokens"))


@pytest.mark.parametrize(
    ("given", "greedy"),
    [
        ({"temperature": 0}, True),
        ({"top_p": 0}, True),
        ({"top_k": 5}, True),
        ({"metadata": {"user_id": "me"}, "service_tier": "auto"}, True),
        ({"cache_control": {"type": "ephemeral"}, "container": None}, True),
        ({"temperature": 1.0}, False),
        ({"top_p": 0.99}, False),
    ],
)
def test_settings_are_those_of_a_chat(model: Served, given: Any, greedy: bool) -> None:
    body = {**CHAT, "max_tokens": 40}
    assert (text_of(ask(model, **body, **given)) == text_of(ask(model, **body))) is greedy


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "look"}])
def test_a_tool_is_called(model: Served, choice: Any) -> None:
    choice = {**choice, "disable_parallel_tool_use": True}
    message = ask(model, **{**CHAT, "max_tokens": 80}, tools=[LOOK], tool_choice=choice)
    (block,) = message["content"]
    assert block["id"].startswith("toolu_") and message["stop_reason"] == "tool_use"
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "look", {"name": "fox"})
    tools = {"tools": [LOOK], "tool_choice": choice}
    counted = ask(model, "v1/messages/count_tokens", messages=[USER], system="Be brief.", **tools)
    assert counted["input_tokens"] == message["usage"]["input_tokens"]


@pytest.mark.parametrize("choice", [None, {"type": "none"}, {"type": "auto"}])
def test_a_tool_need_not_be_called(model: Served, choice: Any) -> None:
    message = ask(model, **CHAT, tools=[LOOK, WAIT], tool_choice=choice)
    assert message["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("key", ["output_config", "output_format"])
def test_an_answer_matches_a_schema(model: Served, key: str) -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    given = {key: {"format": form} if key == "output_config" else form}
    message = ask(model, **{**CHAT, "max_tokens": 80}, **given)
    assert json.loads(text_of(message)) == {"name": "fox"}


@pytest.mark.parametrize("in_parts", [True, False])
def test_a_stream_adds_up_to_the_message(model: Served, in_parts: bool) -> None:
    whole, sent = ask(model, **CHAT), Sent()
    last = call(model, {**CHAT, "stream": True}, sent if in_parts else None)
    begin, start, ping, *deltas, stop, end, done = events(*sent, last)
    assert (ping, done) == ({"type": "ping"}, {"type": "message_stop"})
    assert begin["type"] == "message_start" and begin["message"]["content"] == []
    assert begin["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert (start["type"], start["index"], start["content_block"]["text"]) == (
        "content_block_start",
        0,
        "",
    )
    assert {each["delta"]["type"] for each in deltas} == {"text_delta"}
    assert "".join(each["delta"]["text"] for each in deltas) == text_of(whole)
    assert stop == {"type": "content_block_stop", "index": 0}
    assert end == {
        "type": "message_delta",
        "delta": {"stop_reason": "max_tokens", "stop_sequence": None},
        "usage": whole["usage"],
    }
    assert len(sent) > 3 or not in_parts


def test_a_stream_of_calls_adds_up_to_them(model: Served) -> None:
    body = {**CHAT, "max_tokens": 80, "tools": [LOOK], "tool_choice": {"type": "any"}}
    last = call(model, {**body, "stream": True}, sent := Sent())
    found = events(*sent, last)
    names = [each["type"] for each in found]
    one = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    blocks = [each for each in found if each["type"] in one]
    assert [each["type"] for each in blocks] == one * (len(blocks) // 3)
    for start, delta, stop in zip(*[iter(blocks)] * 3, strict=True):
        assert start["content_block"]["name"] == "look" and start["content_block"]["input"] == {}
        assert json.loads(delta["delta"]["partial_json"]) == {"name": "fox"}
        assert start["index"] == delta["index"] == stop["index"]
    assert found[-2]["delta"]["stop_reason"] in ("tool_use", "max_tokens")


def test_a_stream_that_fails_ends_with_an_error(model: Served, monkeypatch: Any) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(model.engine.task, "decode", fail)
    last = call(model, {**CHAT, "stream": True}, sent := Sent())
    end = events(*sent, last)[-1]
    assert (end["type"], end["error"]["type"]) == ("error", "api_error")
    assert "RuntimeError" in end["error"]["message"]
    assert call(model, CHAT).status == 500


def with_blocks(role: str, *blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(blocks)}], "max_tokens": 6}


def with_tools(*tools: Any, **more: Any) -> dict[str, Any]:
    return {**CHAT, "tools": list(tools), **more}


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ({}, 400, ["messages"]),
        ({"messages": [USER]}, 400, ["max_tokens"]),
        ({**CHAT, "max_tokens": 0}, 400, ["max_tokens", "0"]),
        ({**CHAT, "max_tokens": 999}, 400, ["prompt is too long"]),
        ({**CHAT, "messages": []}, 400, ["messages"]),
        ({**CHAT, "messages": [USER] * 1001}, 413, ["messages", "1001"]),
        (
            {**CHAT, "messages": [{"role": "tool", "content": "a"}]},
            400,
            ["messages[0].role", "tool"],
        ),
        ({**CHAT, "messages": [{"role": {}, "content": "a"}]}, 400, ["messages[0].role", "{}"]),
        ({**CHAT, "messages": [{"role": "user"}]}, 400, ["messages[0].content", "null"]),
        ({**CHAT, "system": [{"type": "image", "source": PNG}]}, 422, ["system[0]", "image"]),
        (with_blocks("user", 5), 400, ["messages[0].content[0]"]),
        (with_blocks("user", {"type": "text"}), 400, ["messages[0].content[0].text"]),
        (
            with_blocks("user", {"type": "image", "source": PNG}),
            422,
            ["messages[0].content[0]", "image"],
        ),
        (with_blocks("user", {"type": "document"}), 422, ["document"]),
        (with_blocks("user", CALL), 422, ["messages[0].content[0]", "tool_use"]),
        (with_blocks("assistant", RESULT), 422, ["tool_result"]),
        (with_blocks("assistant", {**CALL, "input": "a"}), 400, ["messages[0].content[0].input"]),
        (with_blocks("user", {**RESULT, "tool_use_id": 5}), 400, ["tool_use_id"]),
        (
            with_blocks("user", {**RESULT, "content": [CALL]}),
            422,
            ["messages[0].content[0].content[0]", "tool_use"],
        ),
        (with_blocks("user"), 400, ["messages"]),
        (with_blocks("assistant", CALL), 400, ["messages[0]", "tool"]),
        ({**CHAT, "context_management": {"edits": [{"type": "a"}]}}, 422, ["context_management"]),
        ({**CHAT, "temperature": 1.5}, 400, ["temperature", "1.5"]),
        ({**CHAT, "stop_sequences": [""]}, 400, ["stop_sequences.0"]),
        ({**CHAT, "thinking": {"type": "never"}}, 400, ["thinking.type"]),
        (with_tools({"name": "a b", "input_schema": SCHEMA}), 400, ["tools.0.name", "a b"]),
        (with_tools({"name": "look"}), 400, ["tools[0].input_schema"]),
        (
            with_tools({"type": "web_search_20250305", "name": "a"}),
            422,
            ["tools[0]", "web_search_20250305"],
        ),
        (with_tools(LOOK, tool_choice={"type": "tool"}), 400, ["tool_choice", "name"]),
        (with_tools(LOOK, tool_choice={"type": "tool", "name": "no"}), 400, ["tool_choice"]),
        ({**CHAT, "tool_choice": {"type": "any"}}, 400, ["tool_choice", "tools"]),
        ({**CHAT, "mcp_servers": [{"url": "a"}]}, 422, ["mcp_servers"]),
        ([], 400, ["body"]),
        (b"{", 400, ["body"]),
    ],
)
def test_a_request_that_cannot_be_answered_gets_anthropics_error(
    model: Served, body: Any, status: int, facts: list[str]
) -> None:
    answer = call(model, body)
    found = read_json(answer.body)
    kind = "request_too_large" if status == 413 else "invalid_request_error"
    assert (answer.status, found["type"], found["error"]["type"]) == (status, "error", kind)
    assert found["error"]["message"] == Sentence(*facts)


def test_other_paths_and_explanations_are_refused(model: Served) -> None:
    answer = call(model, {}, path="v1/messages/batches")
    assert (answer.status, read_json(answer.body)["error"]["type"]) == (404, "not_found_error")
    assert call(model, CHAT, explain="True").status == 422


def test_a_model_without_texts_or_template_refuses(served: Callable[..., Served]) -> None:
    for mode, word in (("sequence_classification", "writes no texts"), ("text_generation", "chat")):
        answer = call(served(mode), CHAT)
        assert (answer.status, word in answer.body.decode()) == (422, True)


def test_a_model_that_reads_images_takes_them(served: Callable[..., Served]) -> None:
    vision = served("image_text_to_text")
    url = chat_about(TEXTS[0], "?")[0]["content"][0]["image_url"]["url"]
    source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    question = {"type": "text", "text": "What is it?"}
    body = with_blocks("user", {"type": "image", "source": source}, question)
    picture = {"type": "image_url", "image_url": {"url": url}}
    same = same_chat(vision, [{"role": "user", "content": [picture, question]}])
    message = ask(vision, **body)
    assert text_of(message) == same
    counted = ask(vision, "v1/messages/count_tokens", messages=body["messages"])
    assert counted["input_tokens"] == message["usage"]["input_tokens"]
    for source, status in (({"type": "file"}, 422), ({"type": "url", "url": "http://a.b/c"}, 422)):
        answer = call(vision, with_blocks("user", {"type": "image", "source": source}))
        assert answer.status == status, answer.body


def test_a_part_of_another_type_is_no_error_of_the_server(model: Served) -> None:
    blocks = [{"type": "text", "text": "a"}, RESULT]
    called = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}}
    body = {
        "messages": [
            {"role": "assistant", "content": [called]},
            {"role": "user", "content": blocks},
        ],
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "disabled"},
        "stop_sequences": ["a"],
        "max_tokens": 1,
    }
    for changed in with_others(body):
        assert call(model, changed).status < 500, changed
