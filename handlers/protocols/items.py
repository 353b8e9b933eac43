"""The forms in which clients write one item: its inputs and its parameters.

    "a text"                                        the inputs as they are
    {"inputs": …, "parameters": {…}, "target": …}   inputs with parameters
    {"text": …, "text_pair": …}                     as in TorchServe's old example
    {"question": …, "context": …}
    {"<column>": …}                                 the columns of the model's own inputs
    {"data": …}, {"prompt": …}, {"messages": […]}   the inputs under the keys of other servers
    {"features": […]}, […]                          the columns of a table's row
    {"b64": …}                                      a text in base64, also as the value of inputs

`target` is for explanations only, and `options` are for a hub.
"""

from __future__ import annotations

import base64
from collections import ChainMap
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from ..config.messages import check_single, enumerate_names, quote, suggest
from ..errors import BadRequest
from ..types.model_info import FILE_TYPES, SINGLE_VALUES, TEXT_COLUMN, Columns
from ..types.parameters import check_size, json_type
from .base import is_chat, is_pair

INPUT_KEYS = ("inputs", "data", "prompt", "messages", "features")
# Keys of bodies that have no key for the inputs as a whole.
PART_KEYS = ("text", "text_pair", "question", "context", "b64")
# Objects within parameters where callers of pipelines and hubs put parameters of `generate`.
NESTED_PARAMETERS = ("generate_kwargs", "generate_parameters", "generation_parameters")
OTHER_KEYS = ("parameters", "target", "options")


def read_item(
    item: Any, columns: Sequence[Columns], item_name: str, *, explains: bool
) -> tuple[Any, dict[str, Any]]:
    """Return the inputs of an item and its parameters.

    Args:
        columns: the model's `input_columns`, the names that the columns of a row may have.
        item_name: what the format calls an item, for errors.

    Raises:
        BadRequest: it is an object of another form.
    """
    if isinstance(item, list) and not is_chat(item):
        return from_columns(item, columns, f"The {item_name}"), {}
    if not isinstance(item, dict):
        return item, {}
    inputs = {key: value for key, value in item.items() if key not in OTHER_KEYS}
    parameters = read_parameters(item) | read_target(item, explains=explains)
    return _read_inputs(inputs, columns, f"The {item_name}"), parameters


def forms_of(columns: Sequence[Columns]) -> str:
    """Return the usual forms of a model's items, for errors."""
    single = [name for column, name in SINGLE_VALUES.items() if column in columns]
    objects = [", ".join(f'"{name}": …' for name in names) for names in [("inputs",), *columns]]
    forms = [*single, *(f"{{{each}}}" for each in objects)]
    return f"{', '.join(forms[:-1])} or {forms[-1]}"


def has_other_input_keys(body: Mapping[str, Any], columns: Sequence[Columns]) -> bool:
    """Return whether an object has its inputs under other keys than `inputs`."""
    names = {*INPUT_KEYS, *PART_KEYS, *chain.from_iterable(columns)} - {"inputs"}
    return not names.isdisjoint(body)


def read_parameters(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's `parameters`, those in objects within them included.

    Raises:
        BadRequest: they are not an object.
        RequestTooLarge: they have too many values.
    """
    if not body.get("parameters"):
        return {}
    parameters = _read_object(body, "parameters")
    check_size(parameters)
    nested = [_read_object(parameters, name) for name in NESTED_PARAMETERS]
    own = {name: value for name, value in parameters.items() if name not in NESTED_PARAMETERS}
    return dict(ChainMap(own, *nested))


def _read_object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise BadRequest(f"{name} must be an object, and is {json_type(value)}.")
    return value


def read_target(body: Mapping[str, Any], *, explains: bool) -> dict[str, Any]:
    """Return the `target` of an object as a parameter, where an explanation is requested."""
    if not explains or "target" not in body:
        return {}
    parameters = {"target": body["target"]}
    check_size(parameters)
    return parameters


def read_stream(body: Mapping[str, Any]) -> bool:
    """Return whether an object requests a stream."""
    stream = body.get("stream")
    if stream not in (None, True, False):
        raise BadRequest(f"stream must be true or false, and is {json_type(stream)}.")
    return bool(stream)


def check_keys(body: Mapping[str, Any], known: Sequence[str], owner: str) -> None:
    """Refuse keys that are not known; the sentence names the nearest known one."""
    if others := body.keys() - set(known):
        unknown = min(str(key) for key in others)
        raise BadRequest(
            f"{owner} has the unknown key {quote(unknown)}; {suggest(unknown, list(known))}"
        )


def from_columns(values: Any, columns: Sequence[Columns], owner: str) -> Any:
    """Return the inputs that the columns of a row hold."""
    if not isinstance(values, list):
        raise BadRequest(f"{owner} must have a list of columns, and has {json_type(values)}.")
    for names in columns:
        if len(values) == len(names):
            return values[0] if names in SINGLE_VALUES else dict(zip(names, values, strict=True))
    raise BadRequest(f"{owner} has {len(values)} columns; send {named(columns)}.")


def named(columns: Sequence[Columns]) -> str:
    """Return the columns that a table may have, for errors."""
    return " or ".join(",".join(names) for names in columns)


def from_base64(inputs: Any, columns: Sequence[Columns]) -> Any:
    """Return the text of `{"b64": …}`; other inputs, and files, as they are."""
    if not isinstance(inputs, dict) or inputs.keys() != {"b64"}:
        return inputs
    if not FILE_TYPES.keys().isdisjoint(columns):
        return inputs
    try:
        return base64.b64decode(inputs["b64"], validate=True).decode("utf-8")
    except (TypeError, ValueError):
        raise BadRequest("b64 must be a UTF-8 text in base64, and is not.") from None


def _read_inputs(body: dict[str, Any], columns: Sequence[Columns], owner: str) -> Any:
    name = next((name for name in INPUT_KEYS if name in body), None)
    if name is None:
        in_base64 = body.keys() == {"b64"}
        return from_base64(body, columns) if in_base64 else _read_parts(body, columns, owner)
    check_keys(body, [name, *OTHER_KEYS], owner)
    inputs = body[name]
    if name == "features":
        return from_columns(inputs, columns, owner)
    # A pair of texts is one request of a model whose inputs are no single text.
    may_be_pair = SINGLE_VALUES.keys().isdisjoint(columns)
    if isinstance(inputs, list) and not (is_chat(inputs) or (may_be_pair and is_pair(inputs))):
        raise BadRequest(f"{owner} has a list of {name}, and asks about one; send each by itself.")
    return from_base64(inputs, columns)


def _read_parts(body: Mapping[str, Any], columns: Sequence[Columns], owner: str) -> Any:
    """Return the inputs that an object with the model's or the old example's keys has."""
    keys = set(body)
    singles = [each for each in columns if each in SINGLE_VALUES]
    if any(keys == set(each) for each in (*singles, TEXT_COLUMN)):
        ((name, value),) = body.items()
        check_single(value)
        # An object says which it is where a model reads values of several types.
        is_first = not singles or (name,) == singles[0] or (name,) not in singles
        return value if is_first else body
    if keys in map(set, columns):
        return body
    if keys == {"text", "text_pair"} or keys & {"question", "context"}:
        return body
    found = f"the keys {enumerate_names(sorted(map(str, keys)))}" if keys else "no keys"
    raise BadRequest(f"{owner} has {found}; send {forms_of(columns)}.")
