"""Tool calls and their results among the messages of a chat, in the forms that templates read.

{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {…}}}]}
{"role": "tool", "tool_call_id": "…", "content": "…"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from handlers.errors import BadRequest
from handlers.generation.tool_calls import HERMES, ToolCall, ToolSyntax
from handlers.types.structured_output import MAX_TOOLS, Tool
from handlers.types.text_checks import check_setting

Turn = dict[str, Any]

MAX_NAME = 256
# A template that knows no tools gets these texts.
INSTRUCTIONS = """\
You can call functions. Each line describes one, with the JSON schema of its parameters:
{functions}
To call a function, answer with its name and its arguments:
{call}"""
RESULT_START, RESULT_END = "<tool_response>\n", "\n</tool_response>"


class FunctionCall(TypedDict):
    """The name of a function, and its arguments as an object or its JSON text."""

    name: str
    arguments: str | dict[str, Any]


class MessageCall(TypedDict):
    """A call of a tool in a message."""

    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionCall


def check_calls(given: Any, name: str) -> list[MessageCall]:
    """Return the calls of a message, whose arguments are objects.

    Raises:
        BadRequest: they are no list, or too many, or one has no name or no arguments.
    """
    if not isinstance(given, list) or len(given) > MAX_TOOLS:
        raise BadRequest(f"{name} must be a list of at most {MAX_TOOLS} calls.")
    return [_check_call(item, f"{name}[{at}]") for at, item in enumerate(given)]


def template_turn(message: Mapping[str, Any], syntax: ToolSyntax) -> Turn:
    """Return a message as a template with tools reads it."""
    turn = dict(message)
    if "tool_call_id" in turn:
        turn["tool_call_id"] = syntax.call_id(turn["tool_call_id"])
    if "tool_calls" in turn:
        calls = turn["tool_calls"]
        turn["tool_calls"] = [
            {**call, "id": syntax.call_id(call["id"])} if "id" in call else call for call in calls
        ]
    return turn


def with_text_arguments(turn: Turn) -> Turn:
    """Return a message for a template that joins the arguments of calls to texts."""
    if "tool_calls" not in turn:
        return turn
    functions = [call["function"] for call in turn["tool_calls"]]
    texts = [{**each, "arguments": to_json(each["arguments"])} for each in functions]
    pairs = zip(turn["tool_calls"], texts, strict=True)
    return {**turn, "tool_calls": [{**call, "function": function} for call, function in pairs]}


def text_turns(messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> list[Turn]:
    """Return messages for a template that knows no tools: calls and results are contents.

    The tools are described in the system message, the first.
    """
    turns: list[Turn] = []
    for message in messages:
        content = message["content"]
        if calls := message.get("tool_calls"):
            functions = [call["function"] for call in calls]
            written = HERMES.write(
                [ToolCall(each["name"], to_json(each["arguments"])) for each in functions]
            )
            content = _with_text(content, written, "\n")
        if message["role"] != "tool":
            turns.append({"role": message["role"], "content": content})
        else:
            _append_result(turns, f"{RESULT_START}{content}{RESULT_END}")
    return _with_instructions(turns, tools) if tools else turns


def in_parts(turns: Sequence[Turn]) -> list[Turn]:
    """Return messages whose contents are lists of parts, for a template that reads no texts."""
    return [
        {**turn, "content": [{"type": "text", "text": turn["content"]}]}
        if isinstance(turn["content"], str)
        else turn
        for turn in turns
    ]


def to_json(value: Any) -> str:
    """Return the JSON text of a value for a prompt."""
    return json.dumps(value, ensure_ascii=False)


def _check_call(item: Any, name: str) -> MessageCall:
    function = item.get("function") if isinstance(item, dict) else None
    arguments = _to_object(function.get("arguments")) if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(arguments, dict):
        raise BadRequest(
            f'{name} must be {{"function": {{"name": …, "arguments": …}}}}; send the arguments as'
            " an object, or its JSON text."
        )
    called = check_setting(function.get("name"), f"{name}.function.name", MAX_NAME)
    call: MessageCall = {
        "type": "function",
        "function": {"name": called, "arguments": arguments},
    }
    if item.get("id") is not None:
        call["id"] = check_setting(item["id"], f"{name}.id", MAX_NAME)
    return call


def _to_object(arguments: Any) -> Any:
    """Return arguments as an object; no text is no arguments, as some clients send it."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None


def _with_text(content: Any, text: str, separator: str) -> Any:
    """Return a content, which is a text or a list of parts, with another text after it."""
    if isinstance(content, str):
        return separator.join(filter(None, [content, text]))
    return [*content, {"type": "text", "text": separator + text}]


def _append_result(turns: list[Turn], text: str) -> None:
    """Append the result of a call, together with those before it.

    Many templates refuse two turns of the user in a row.
    """
    last = turns[-1]["content"] if turns and turns[-1]["role"] == "user" else ""
    if isinstance(last, str) and last.endswith(RESULT_END):
        turns[-1]["content"] += f"\n{text}"
    else:
        turns.append({"role": "user", "content": text})


def _with_instructions(turns: list[Turn], tools: Sequence[Tool]) -> list[Turn]:
    functions = "\n".join(to_json(tool.for_template["function"]) for tool in tools)
    text = INSTRUCTIONS.format(functions=functions, call=HERMES.write([ToolCall("…", "{…}")]))
    if turns[0]["role"] == "system":
        content = _with_text(turns[0]["content"], text, "\n\n")
        return [{**turns[0], "content": content}, *turns[1:]]
    return [{"role": "system", "content": text}, *turns]
