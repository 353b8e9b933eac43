"""The checks of a text: a string, not empty, not too long, and encodable."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from handlers.config.messages import quote
from handlers.errors import BadRequest, RequestTooLarge, TextTooLong


def check_text(
    value: Any,
    name: str,
    max_characters: int,
    too_long: type[RequestTooLarge] = TextTooLong,
) -> str:
    """Return a text that a tokenizer can take.

    Args:
        name: its name in an error, for example `inputs`.

    Raises:
        BadRequest: not a string, empty, or with half a surrogate pair.
        RequestTooLarge: more characters than allowed.
    """
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text, and is {json_type(value)}.")
    if not value.strip():
        raise BadRequest(f"{name} is empty; send a text.")
    if len(value) > max_characters:
        raise too_long(
            f"{name} has {len(value):,} characters, and this model takes {max_characters:,}"
            "; send less."
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"{name} has half of a surrogate pair at character {error.start}"
            "; send whole characters."
        ) from None
    return value


def check_setting(value: Any, name: str, max_characters: int) -> str:
    """Return a checked text that is no input of the model, such as a name or a schema."""
    return check_text(value, name, max_characters, RequestTooLarge)


def check_list(value: Any, name: str, max_rows: int) -> list[Any]:
    """Return the list of texts of one request; the texts are not checked yet."""
    if not isinstance(value, list):
        raise BadRequest(f"{name} must be a list of texts, and is {json_type(value)}.")
    if not value:
        raise BadRequest(f"{name} is an empty list; send at least one text.")
    if len(value) > max_rows:
        raise RequestTooLarge(
            f"{name} has {len(value):,} texts, and this model takes {max_rows:,} a request"
            "; send them in parts."
        )
    return value


def check_object(value: Any, form: str, *keys: Collection[str]) -> dict[str, Any]:
    """Return inputs that are an object with exactly one of several sets of keys.

    Args:
        form: what to send, for errors.
    """
    if not isinstance(value, dict):
        raise BadRequest(f"inputs must be {form}, and is {json_type(value)}.")
    if all(value.keys() != set(each) for each in keys):
        raise BadRequest(f"inputs has the keys {quote(sorted(map(str, value)))}; send {form}.")
    return value


def parse_json(value: Any, name: str, max_characters: int) -> Any:
    """Return the value of a JSON text, as tensors and forms have lists; others as they are."""
    if not isinstance(value, str):
        return value
    if len(value) > max_characters:
        raise TextTooLong(
            f"{name} has {len(value):,} characters, and this model takes {max_characters:,}"
            "; send less."
        )
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise BadRequest(f"{name} is a text that is not JSON; send JSON.") from None


def json_type(value: Any) -> str:
    """Return the name of the type of a JSON value, or of a body or a field of a form."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    names |= {int: "a number", float: "a number", type(None): "null", bytes: "a file"}
    return names.get(type(value), f"a {type(value).__name__}")
