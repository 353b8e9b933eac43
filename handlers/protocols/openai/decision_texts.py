"""The text of what questions are about: a text, JSON, or the items of a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...config.messages import quote
from ...errors import BadRequest, Unprocessable
from ...types.parameters import json_type

# The key of the text of each type of part.
TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
JSON_PART = "input_json"
# What each type of item is called in the text, and the keys of what it has.
ITEMS: Mapping[str, tuple[str, Sequence[str]]] = {
    "function_call": ("call", ("name", "arguments")),
    "function_call_output": ("result", ("output",)),
    "custom_tool_call": ("call", ("name", "input")),
    "custom_tool_call_output": ("result", ("output",)),
}


def text_of_input(given: Any) -> Any:
    """Return the text of an input: a text as it is, a single message without its role.

    Raises:
        RequestError: an item is no message and no call of a tool, or has an image.
    """
    if not isinstance(given, list):
        return given
    items = [_item(each, f"input[{number}]") for number, each in enumerate(given)]
    if len(items) == 1:
        return items[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in items)


def text_of_content(given: Any, name: str) -> str:
    """Return a content: a text, or parts of texts and JSON.

    Raises:
        RequestError: it is neither, or has an image.
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise BadRequest(f"{name} must be a text or a list of parts, and is {json_type(given)}.")
    return "\n".join(_part(each, f"{name}[{number}]") for number, each in enumerate(given))


def text_of_json(given: Any) -> str:
    """Return a text as it is, and other values as JSON."""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _item(item: Any, name: str) -> tuple[str, str]:
    """Return the role and the text of an item."""
    if not isinstance(item, dict):
        raise BadRequest(f"{name} must be a message, and is {json_type(item)}.")
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str):
            raise BadRequest(f"{name}.role must be a text, and is {json_type(role)}.")
        return role, text_of_content(item.get("content"), f"{name}.content")
    if not isinstance(kind, str) or kind not in ITEMS:
        raise Unprocessable(
            f"{name} has the type {quote(kind)}, and this server reads messages and calls of tools."
        )
    called, keys = ITEMS[kind]
    return called, " ".join(text_of_content(item.get(key), f"{name}.{key}") for key in keys)


def _part(part: Any, name: str) -> str:
    if not isinstance(part, dict):
        raise BadRequest(f"{name} must be an object, and is {json_type(part)}.")
    kind = part.get("type")
    if kind == JSON_PART:
        return text_of_json(part.get("data"))
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        raise Unprocessable(
            f"{name} has the type {quote(kind)}, and this model reads texts and JSON only."
        )
    text = part.get(TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise BadRequest(f"{name}.{TEXT_PARTS[kind]} must be a text, and is {json_type(text)}.")
    return text
