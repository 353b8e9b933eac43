"""One thing that a body asks about, out of the ways people write it down.

    "a text"                                        what the mode asks about, as it is
    {"inputs": …, "parameters": {…}, "target": …}   with settings of its own
    {"text": …, "text_pair": …}                     the old example's way
    {"question": …, "context": …}
    {"data": …}, {"prompt": …}, {"messages": […]}   what other servers call inputs
    {"features": […]}, […]                          the columns of a table's row
    {"b64": …}                                      a text in base64, also in place of inputs

`target` is for explanations only, and `options` are for a hub.
"""

from __future__ import annotations

import base64
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

from handlers.config.choices import suggest
from handlers.errors import BadRequest
from handlers.protocols.base import is_chat
from handlers.schemas.text_checks import json_type

NAMES_OF_INPUTS = ("inputs", "data", "prompt", "messages", "features")
# What only bodies of other shapes have.
NAMES_OF_PARTS = ("text", "text_pair", "question", "context", "b64")
# Where callers of pipelines and hubs put what goes to `generate`.
PARAMETERS_WITHIN = ("generate_kwargs", "generation_parameters")
BESIDE_INPUTS = ("parameters", "target", "options")
SHAPES = 'a text, {"inputs": …}, {"text": …} or {"question": …, "context": …}'

Layout = tuple[str, ...]
PLAIN: Layout = ("text",)
LAYOUTS: dict[str, list[Layout]] = {
    "question_answering": [("question", "context")],
    "sequence_classification": [PLAIN, ("text", "text_pair")],
}


def read_item(given: Any, mode: str, noun: str, *, explains: bool) -> tuple[Any, dict[str, Any]]:
    """Return what an item asks about, and its own parameters.

    Args:
        given: the item, one request whatever it holds.
        mode: the model's, which tells what columns mean.
        noun: what the format calls an item, for errors.
        explains: whether it came to an explanation route.

    Raises:
        BadRequest: it is an object of another shape.
    """
    if isinstance(given, list) and not is_chat(given):
        return from_columns(given, layouts_of(mode), f"The {noun}"), {}
    if not isinstance(given, dict):
        return given, {}
    asked = {key: value for key, value in given.items() if key not in BESIDE_INPUTS}
    parameters = parameters_in(given) | target_in(given, explains=explains)
    return _inputs_in(asked, mode, f"The {noun}"), parameters


def asks_elsewhere(given: Mapping[str, Any]) -> bool:
    """Tell whether an object has what it asks about under other names than `inputs`."""
    names = {*NAMES_OF_INPUTS, *NAMES_OF_PARTS} - {"inputs"}
    return not names.isdisjoint(given)


def parameters_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's `parameters`, with those in objects within; none where it has none.

    Raises:
        BadRequest: they are no object.
    """
    own = _object_in(given, "parameters")
    within = [_object_in(own, name) for name in PARAMETERS_WITHIN]
    named = {name: value for name, value in own.items() if name not in PARAMETERS_WITHIN}
    return dict(ChainMap(named, *within))


def _object_in(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name) or {}
    if not isinstance(found, dict):
        raise BadRequest(f"{name} must be an object, and is {json_type(found)}.")
    return found


def target_in(given: Mapping[str, Any], *, explains: bool) -> dict[str, Any]:
    """Return the parameter that an object's `target` is on an explanation route."""
    return {"target": given["target"]} if explains and "target" in given else {}


def streams(given: Mapping[str, Any]) -> bool:
    """Tell whether an object asks for a stream of events.

    Raises:
        BadRequest: it neither does nor does not.
    """
    asked = given.get("stream")
    if asked not in (None, True, False):
        raise BadRequest(f"stream must be true or false, and is {json_type(asked)}.")
    return bool(asked)


def check_keys(given: Mapping[str, Any], known: Sequence[str], owner: str) -> None:
    """Check that an object has no other keys.

    Raises:
        BadRequest: it has; the text names the nearest known one.
    """
    if unknown := sorted(str(key) for key in given.keys() - set(known)):
        raise BadRequest(
            f"{owner} has the unknown key {unknown[0]!r}; {suggest(unknown[0], list(known))}"
        )


def old_inputs(given: Mapping[str, Any], owner: str) -> Any:
    """Return what an object of the old example's keys asks about.

    Raises:
        BadRequest: it has other keys.
    """
    keys = set(given)
    if keys == {"text"}:
        return given["text"]
    if keys == {"text", "text_pair"} or keys & {"question", "context"}:
        return given
    found = f"the keys {', '.join(sorted(map(str, keys)))}" if keys else "no keys"
    raise BadRequest(f"{owner} has {found}; send {SHAPES}.")


def layouts_of(mode: str) -> list[Layout]:
    """Return the columns that a mode's rows may have in a table."""
    return LAYOUTS.get(mode, [PLAIN])


def from_columns(values: Any, layouts: Sequence[Layout], owner: str) -> Any:
    """Return what the columns of a row ask about.

    Raises:
        BadRequest: there are more or fewer of them than any layout has.
    """
    if not isinstance(values, list):
        raise BadRequest(f"{owner} must have a list of columns, and has {json_type(values)}.")
    for names in layouts:
        if len(values) == len(names):
            return values[0] if names == PLAIN else dict(zip(names, values, strict=True))
    known = " or ".join(",".join(names) for names in layouts)
    raise BadRequest(f"{owner} has {len(values)} columns; send {known}.")


def _inputs_in(asked: dict[str, Any], mode: str, owner: str) -> Any:
    name = next((name for name in NAMES_OF_INPUTS if name in asked), None)
    if name is None:
        return from_base64(asked) if asked.keys() == {"b64"} else old_inputs(asked, owner)
    check_keys(asked, [name, *BESIDE_INPUTS], owner)
    inputs = asked[name]
    if name == "features":
        return from_columns(inputs, layouts_of(mode), owner)
    if isinstance(inputs, list) and not is_chat(inputs):
        raise BadRequest(f"{owner} has a list of {name}, and asks about one; send each by itself.")
    return from_base64(inputs)


def from_base64(given: Any) -> Any:
    """Return the text of `{"b64": …}`; other inputs as they are.

    Raises:
        BadRequest: it is no text in base64.
    """
    if not isinstance(given, dict) or given.keys() != {"b64"}:
        return given
    try:
        return base64.b64decode(given["b64"], validate=True).decode("utf-8")
    except (TypeError, ValueError):
        raise BadRequest("b64 must be a UTF-8 text in base64, and is not.") from None
