"""The items of `responses` as the messages and tools of a chat.

https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from ...config.messages import enumerate_names, quote
from ...errors import BadRequest, Unprocessable
from ...types.parameters import json_type

TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal", "text": "text"}
IMAGE_PART = "input_image"
# The roles of instructions.
INSTRUCTING = ("system", "developer")
# The status of a message that a new text continues.
UNFINISHED = ("in_progress", "incomplete")
# The keys of a function or a custom tool.
TOOL_KEYS = {
    "function": ("name", "description", "parameters", "strict"),
    "custom": ("name", "description", "format"),
}
Message = dict[str, Any]


def chat_tool(tool: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a tool as chats have it.

    Raises:
        Unprocessable: it is neither a function nor a custom tool.
    """
    kind = tool.get("type")
    if not isinstance(kind, str) or kind not in TOOL_KEYS:
        raise Unprocessable(
            f"{name} has the type {quote(kind)}, and this server runs no tools; send"
            f" {enumerate_names(TOOL_KEYS)} tools, which the client runs."
        )
    own = {key: tool[key] for key in TOOL_KEYS[kind] if tool.get(key) is not None}
    return {"type": kind, kind: own}


def chat_messages(items: Sequence[Mapping[str, Any]], *, reads_images: bool) -> list[Message]:
    """Return the items of a conversation as messages of a chat.

    Thoughts, a message and calls of the assistant in a row are one message.

    Raises:
        RequestError: an item is malformed, or is none of those that this server reads.
    """
    messages: list[Message] = []
    for at, item in enumerate(items):
        kind = item.get("type") or "message"
        if not isinstance(kind, str) or kind not in READERS:
            raise Unprocessable(
                f"input[{at}] has the type {quote(kind)}, and this server reads"
                f" {enumerate_names(READERS)}; leave it out."
            )
        new = READERS[kind](item, f"input[{at}]", reads_images)
        if messages and _is_continued(messages[-1], new):
            messages[-1] = _joined(messages[-1], new)
        else:
            messages.append(new)
    return messages


def with_one_system_message(messages: Sequence[Message]) -> list[Message]:
    """Return messages whose instructions at the beginning are one message.

    Clients send instructions and messages of the developer, and many templates take the first
    message of the system alone.
    """
    leading = list(takewhile(lambda each: each["role"] in INSTRUCTING, messages))
    texts = [_joined_text(each["content"]) for each in leading]
    if len(texts) < 2 or None in texts:
        return list(messages)
    joined = {**leading[0], "content": "\n\n".join(text for text in texts if text)}
    return [joined, *messages[len(leading) :]]


def _joined_text(content: Any) -> str | None:
    """Return the text of a content; None for another content."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [part.get("text") for part in content]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else None


def goes_on(items: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last item is a message of the assistant that is not complete."""
    last = items[-1] if items else {}
    is_answer = (last.get("type") or "message") == "message" and last.get("role") == "assistant"
    return is_answer and last.get("status") in UNFINISHED


def listed_items(items: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the items of an input as lists of a stored response have them: with ids and parts."""
    return [_listed(item, at) for at, item in enumerate(items)]


def _listed(item: Mapping[str, Any], at: int) -> Message:
    kind, content = item.get("type") or "message", item.get("content")
    listed = {**item, "id": item.get("id") or f"item_{at}", "type": kind}
    if kind == "message" and isinstance(content, str):
        is_answer = item.get("role") == "assistant"
        part = {"type": "output_text", "annotations": []} if is_answer else {"type": "input_text"}
        listed["content"] = [{**part, "text": content}]
    return listed


def _is_continued(last: Message, new: Message) -> bool:
    """Return whether the assistant's message goes on with calls, or thoughts with a message."""
    if not last["role"] == new["role"] == "assistant":
        return False
    is_call = "tool_calls" in new
    is_after_thoughts = "reasoning_content" in last and not (
        last["content"] or "tool_calls" in last
    )
    return is_call or (is_after_thoughts and "reasoning_content" not in new)


def _joined(last: Message, new: Message) -> Message:
    calls = [*last.get("tool_calls", ()), *new.get("tool_calls", ())]
    return {
        **last,
        "content": new["content"] or last["content"],
        **({"tool_calls": calls} if calls else {}),
    }


def _message(item: Mapping[str, Any], name: str, reads_images: bool) -> Message:
    content = item.get("content")
    if isinstance(content, list):
        content = [_part(part, f"{name}.content", reads_images) for part in content]
    return {"role": item.get("role"), "content": content}


def _part(part: Any, name: str, reads_images: bool) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise BadRequest(f"{name} must be a list of objects, and has {json_type(part)}.")
    kind = part.get("type")
    if reads_images and kind == IMAGE_PART:
        if part.get("image_url") is None:
            raise BadRequest(
                f"{name} has an image without image_url; files have no other ids here."
            )
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        read = "texts and images" if reads_images else "texts"
        raise Unprocessable(
            f"{name} has a part of the type {quote(kind)}, and this model reads {read} only."
        )
    key = TEXT_PARTS[kind]
    return {"type": key, key: part.get(key)}


def _reasoning(item: Mapping[str, Any], name: str, reads_images: bool) -> Message:
    given = {key: item.get(key) or [] for key in ("content", "summary")}
    for key, parts in given.items():
        if not isinstance(parts, list):
            raise BadRequest(f"{name}.{key} must be a list, and is {json_type(parts)}.")
    # A summary says again what the content says.
    parts = given["content"] or given["summary"]
    if not parts and item.get("encrypted_content"):
        raise Unprocessable(
            f"{name} has encrypted thoughts, which this server cannot read; leave it out."
        )
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise BadRequest(f"{name} has thoughts without a text.")
    text = "\n".join(part["text"] for part in parts)
    return {"role": "assistant", "content": "", "reasoning_content": text}


def _call(item: Mapping[str, Any], name: str, reads_images: bool) -> Message:
    call = {
        "id": item.get("call_id"),
        "type": "function",
        "function": {"name": item.get("name"), "arguments": item.get("arguments")},
    }
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _custom_call(item: Mapping[str, Any], name: str, reads_images: bool) -> Message:
    return _call({**item, "arguments": {"input": item.get("input")}}, name, reads_images)


def _result(item: Mapping[str, Any], name: str, reads_images: bool) -> Message:
    output = item.get("output")
    if isinstance(output, list):
        output = [_part(part, f"{name}.output", reads_images) for part in output]
    return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}


# What reads the item of each type.
READERS: Mapping[str, Callable[[Mapping[str, Any], str, bool], Message]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "function_call_output": _result,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _result,
}
