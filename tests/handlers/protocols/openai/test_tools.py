"""Structured outputs and tool calls, in the shapes of OpenAI's reference."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.handlers.generation.test_chat import CHAT, WITH_TOOLS
from tests.handlers.protocols.openai.test_openai import Sent, ask, ends, events
from tests.scripted import write
from tests.sentences import Sentence
from tests.serving import Served, call, read_json

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["fox"]}},
    "required": ["name"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}},
    {"type": "function", "function": {"name": "stop", "description": "Stops."}},
]
LOOK = {"type": "function", "function": {"name": "look"}}
MANY = {"max_tokens": 80, "temperature": 1.5, "seed": 5}
ID = re.compile(r"call_[0-9a-f]{24}")


@pytest.fixture
def model(served: Callable[..., Served], monkeypatch: Any) -> Iterator[Served]:
    model = served("text_generation", family="GPT2")
    monkeypatch.setattr(
        model.engine.task.checkpoint.tokenizer,
        "chat_template",
        WITH_TOOLS,
    )
    yield model


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        {"type": "json", "value": SCHEMA},
        {"type": "json_object", "value": SCHEMA},
        {"type": "json_object", "schema": SCHEMA},
        {"type": "json_object", "value": None, "schema": SCHEMA},
        {"type": "json_schema", "schema": SCHEMA},
        {"type": "regex", "value": r'\{"name": "fox"\}'},
    ],
)
def test_a_response_format_holds_in_chats_and_completions(
    model: Served, response_format: Any
) -> None:
    given = {"response_format": response_format, **MANY}
    (choice,) = ask(model, "v1/chat/completions", messages=CHAT, **given)["choices"]
    assert json.loads(choice["message"]["content"]) == {"name": "fox"}
    assert choice["finish_reason"] == "stop"
    (choice,) = ask(model, "v1/completions", prompt="Ada", **given)["choices"]
    assert json.loads(choice["text"]) == {"name": "fox"}


@pytest.mark.parametrize(
    "given",
    [
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"guided_regex": r'\{"name": "fox"\}'},
        {"guided_choice": ['{"name": "fox"}']},
        {"guided_grammar": 'start: "{\\"name\\": \\"" name "\\"}"\nname: "fox"'},
        {"guided_grammar": 'root ::= "{\\"name\\": \\"" name "\\"}"\nname ::= "fox"'},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"regex": r'\{"name": "fox"\}', "backend": "xgrammar"}},
        {"structured_outputs": {"choice": ['{"name": "fox"}'], "json_object": False}},
        {"structured_outputs": {"grammar": 'start: "{\\"name\\": \\"fox\\"}"'}},
    ],
)
def test_the_structured_outputs_of_vllm_hold(model: Served, given: Any) -> None:
    for path, inputs in (
        ("chat/completions", {"messages": CHAT}),
        ("completions", {"prompt": "a"}),
    ):
        (choice,) = ask(model, path, **inputs, **given, **MANY)["choices"]
        assert json.loads(choice.get("text") or choice["message"]["content"]) == {"name": "fox"}


def test_one_of_several_texts_is_written_whatever_it_has(model: Served) -> None:
    texts = ["a.b", "(c|d)", "e/f\\", 'g"h', "i\nj", "[k]{1}^$*+?-", "Zürich 北京"]
    for seed in range(6):
        given = {"guided_choice": texts, **MANY, "seed": seed}
        (choice,) = ask(model, "completions", prompt="a", **given)["choices"]
        assert choice["text"] in texts and choice["finish_reason"] == "stop"


def test_a_json_object_is_written_from_its_brace_on(model: Served) -> None:
    given = {"response_format": {"type": "json_object"}, **MANY}
    (choice,) = ask(model, "v1/chat/completions", messages=CHAT, **given)["choices"]
    text = choice["message"]["content"]
    assert text.startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(text), dict)


def test_free_text_is_a_format_too(model: Served) -> None:
    plain = ask(model, "v1/chat/completions", messages=CHAT, max_tokens=6)["choices"]
    for given in ({"type": "text"}, None):
        settings = {"max_tokens": 6, "response_format": given}
        assert ask(model, "v1/chat/completions", messages=CHAT, **settings)["choices"] == plain


def test_a_text_that_is_cut_has_the_finish_reason_length(model: Served) -> None:
    given = {"response_format": {"type": "regex", "value": "a{40}"}, "max_tokens": 3}
    (choice,) = ask(model, "v1/chat/completions", messages=CHAT, **given)["choices"]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("choice", ["required", LOOK])
def test_a_tool_is_called(model: Served, choice: Any) -> None:
    given = {"tools": TOOLS[:1], "tool_choice": choice, "parallel_tool_calls": False, **MANY}
    (answer,) = ask(model, "v1/chat/completions", messages=CHAT, **given)["choices"]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["role"] == "assistant" and answer["message"]["content"] is None
    (called,) = answer["message"]["tool_calls"]
    assert ID.fullmatch(called["id"]) and called["type"] == "function"
    assert called["function"]["name"] == "look"
    assert json.loads(called["function"]["arguments"]) == {"name": "fox"}


def test_an_error_about_the_schema_of_a_tool_names_the_tools(model: Served) -> None:
    function = {"name": "look", "parameters": {"type": "object", "properties": {"a": {"type": 5}}}}
    body = {"messages": CHAT, "tools": [{"type": "function", "function": function}]}
    answer = call(model, "v1/chat/completions", body)
    assert (answer.status, read_json(answer.body)["error"]["param"]) == (400, "tools")


def test_keywords_of_a_schema_may_be_null(model: Served) -> None:
    parameters = {"type": "object", "properties": None, "required": None}
    tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    given = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False, **MANY}
    (answer,) = ask(model, "v1/chat/completions", messages=CHAT, **given)["choices"]
    (called,) = answer["message"]["tool_calls"]
    assert called["function"] == {"name": "look", "arguments": "{}"}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_one_of_the_allowed_tools_is_called(model: Served) -> None:
    for seed in range(4):
        given = {"tools": TOOLS, "tool_choice": allowed("required", "look"), **MANY, "seed": seed}
        (answer,) = ask(model, "v1/chat/completions", messages=CHAT, **given)["choices"]
        called = [each["function"]["name"] for each in answer["message"]["tool_calls"]]
        assert {*called} == {"look"}
    given = {"tools": TOOLS, "tool_choice": allowed("auto", "stop"), "max_tokens": 6}
    plain = ask(model, "v1/chat/completions", messages=CHAT, tools=TOOLS, max_tokens=6)
    assert ask(model, "v1/chat/completions", messages=CHAT, **given)["choices"] == plain["choices"]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_an_allowed_tool_is_one_of_the_tools(model: Served, mode: str) -> None:
    body = {"messages": CHAT, "tools": TOOLS, "tool_choice": allowed(mode, "look", "other")}
    answer = call(model, "v1/chat/completions", body)
    message = read_json(answer.body)["error"]["message"]
    assert (answer.status, message) == (400, Sentence("tool_choice", "other"))


def test_the_name_of_a_tool_has_at_most_128_characters(model: Served) -> None:
    for length, status in ((128, 200), (129, 400)):
        tools = [{"type": "function", "function": {"name": "a" * length}}]
        body = {"messages": CHAT, "tools": tools, "max_tokens": 2}
        assert call(model, "v1/chat/completions", body).status == status


def test_a_stream_of_calls_adds_up_to_them(model: Served) -> None:
    given = {"tools": TOOLS, "tool_choice": LOOK, "n": 2, **MANY}
    whole = ask(model, "v1/chat/completions", messages=CHAT, **given)
    sent: Sent = []
    body = {"messages": CHAT, "stream": True, "stream_options": {"include_usage": True}, **given}
    last = call(model, "v1/chat/completions", body, sent)
    *parts, end = events(*sent, last)
    assert end["usage"] == whole["usage"]
    for choice in whole["choices"]:
        index = choice["index"]
        deltas = [
            part["choices"][0]["delta"] for part in parts if part["choices"][0]["index"] == index
        ]
        (expected,) = choice["message"]["tool_calls"]
        named, arguments = (delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta)
        assert ID.fullmatch(named.pop("id"))
        assert named == {
            "index": 0,
            "type": "function",
            "function": {"name": "look", "arguments": ""},
        }
        assert arguments == {
            "index": 0,
            "function": {"arguments": expected["function"]["arguments"]},
        }
        assert "".join(delta.get("content", "") for delta in deltas) == ""
        assert ends(parts, index) == ["tool_calls"]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("'\"parameters\": '", '{"name": "look", "parameters": {"name": "fox"}}'),
        ("[func_name1(", '[look(name="fox")]'),
    ],
    ids=["Llama 3", "Llama 4"],
)
def test_calls_without_an_opening_are_no_text_while_they_grow(
    model: Served, monkeypatch: Any, shown: str, text: str
) -> None:
    tokenizer = model.engine.task.checkpoint.tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", f"{{# {shown} #}}{WITH_TOOLS}")
    write(model, text, monkeypatch)
    body = {"messages": CHAT[1:], "tools": TOOLS[:1], "max_tokens": 60}
    sent: Sent = []
    last = call(model, "v1/chat/completions", {**body, "stream": True}, sent)
    deltas = [part["choices"][0]["delta"] for part in events(*sent, last)]
    assert "".join(delta.get("content") or "" for delta in deltas) == ""
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    assert "".join(part["function"]["arguments"] for part in parts) == '{"name": "fox"}'
    (cut,) = ask(model, "v1/chat/completions", **{**body, "max_tokens": 5})["choices"]
    assert (cut["message"]["content"], cut["finish_reason"]) == ("", "length")
    write(model, "A fox.", monkeypatch)
    (plain,) = ask(model, "v1/chat/completions", **body)["choices"]
    assert plain["message"]["content"] == "A fox."


def test_a_conversation_with_calls_goes_on(model: Served) -> None:
    given = {"tools": TOOLS, "tool_choice": LOOK, **MANY}
    (choice,) = ask(model, "v1/chat/completions", messages=CHAT, **given)["choices"]
    (called,) = choice["message"]["tool_calls"]
    messages = [
        CHAT[1],
        choice["message"],
        {"role": "tool", "tool_call_id": called["id"], "content": "It is a fox."},
    ]
    answer = ask(model, "v1/chat/completions", messages=messages, tools=TOOLS, max_tokens=4)
    assert answer["usage"]["completion_tokens"] <= 4


def test_a_model_that_may_call_is_free_to_write(model: Served) -> None:
    settings = {"tools": TOOLS, "max_tokens": 6}
    for choice in (None, "auto", "none"):
        body = {**settings, "tool_choice": choice} if choice else settings
        (answer,) = ask(model, "v1/chat/completions", messages=CHAT, **body)["choices"]
        assert answer["message"].keys() == {"role", "content"}
        assert answer["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("given", "status", "facts"),
    [
        ({"tools": [{}]}, 400, ["tools.0.type"]),
        (
            {"tools": [{"type": "x", "function": {"name": "f"}}]},
            400,
            ["x", "tools.0.type", "custom"],
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            400,
            ["tools", "function"],
        ),
        ({"tools": [TOOLS[0]] * 129}, 400, ["tools"]),
        ({"tools": TOOLS, "tool_choice": "always"}, 400, ["tool_choice"]),
        ({"tool_choice": "required"}, 400, ["tool_choice"]),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "function", "function": {"name": "other"}},
            },
            400,
            ["tool_choice"],
        ),
        ({"response_format": {"type": "xml"}}, 400, ["xml", "response_format.type"]),
        ({"response_format": {"type": "json_schema"}}, 400, ["response_format", "json_schema"]),
        (
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
            400,
            ["response_format", "schema"],
        ),
        (
            {"response_format": {"type": "regex", "value": "("}},
            400,
            ["grammar"],
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"not": {}}, "strict": True},
                }
            },
            400,
            ["JSON"],
        ),
        ({"functions": [{"name": "f"}]}, 422, ["functions"]),
        (
            {"guided_regex": "a", "structured_outputs": {"regex": "b"}},
            400,
            ["guided_regex", "structured_outputs"],
        ),
        ({"structured_outputs": {}}, 400, ["structured_outputs", 0]),
        ({"structured_outputs": {"structural_tag": "{}"}}, 422, ["structural_tag"]),
        ({"guided_choice": []}, 400, ["choice"]),
        ({"guided_choice": ["a", ""]}, 400, ["choice"]),
        ({"guided_grammar": "start: missing"}, 400, ["grammar"]),
        ({"guided_grammar": "root ::= ("}, 400, ["grammar"]),
        ({"guided_grammar": 'start: "a"', "tools": TOOLS}, 422, ["tools"]),
        ({"guided_json": 5}, 400, ["JSON"]),
    ],
)
def test_what_cannot_be_understood_is_refused(
    model: Served, given: Any, status: int, facts: list[str]
) -> None:
    answer = call(model, "v1/chat/completions", {"messages": CHAT, **given})
    error = read_json(answer.body)["error"]
    assert (answer.status, error["message"]) == (status, Sentence(*facts))
