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

Embedding servers have texts and images in items, and in contents:

    "a text", {"text": "a text"}, {"image": "<base64>"}                items of Jina's bodies
    {"type": "text", "text": "a text"}                                 parts of a content
    {"type": "image_url", "image_url": {"url": "data:image/png;…"}}
"""

from __future__ import annotations

import base64
from collections import ChainMap
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NotRequired

from typing_extensions import TypedDict

from ..config.messages import check_single, enumerate_names, quote, suggest
from ..errors import BadRequest, Unprocessable
from ..types.model_info import FILE_TYPES, SINGLE_VALUES, TEXT_COLUMN, Columns, ModelInfo
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
    """Return the `target` of an object as a parameter, where an explanation is requested.

    Raises:
        BadRequest: there is another one in its parameters.
        RequestTooLarge: it has too many values.
    """
    if not explains or "target" not in body:
        return {}
    named = _read_object(body, "parameters").get("target")
    if named is not None:
        if body["target"] not in (None, named):
            raise BadRequest("target is next to inputs and another one in parameters; send one.")
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


PARTS = '[{"type": "text", "text": …}]'


class ImageUrl(TypedDict):
    """A data URI, or the URL of a host that is allowed; `detail` and other keys are ignored."""

    url: str


class ContentPart(TypedDict):
    """A part of an input, a text or an image; other keys are ignored."""

    type: NotRequired[str]
    text: NotRequired[str]
    image_url: NotRequired[ImageUrl | str]


class TextItem(TypedDict):
    """An input that is a text."""

    text: str


class ImageItem(TypedDict):
    """An input that is an image: base64, a data URI, or the URL of a host that is allowed."""

    image: str


def image_input(image: Any, name: str, model: ModelInfo) -> dict[str, Any]:
    """Return the input of an image.

    Raises:
        Unprocessable: the model reads no images.
    """
    if not model.task.wire.reads_media:
        raise Unprocessable(
            f"{name} has an image, and this model's mode is {model.mode}; it reads texts only."
        )
    return {"image": image}


def item_input(item: Any, name: str, model: ModelInfo) -> Any:
    """Return the input of an item; what is neither a text nor an image stays as it is.

    Raises:
        Unprocessable: it has an image, and the model reads none.
    """
    if not isinstance(item, Mapping):
        return item
    if item.keys() == {"text"}:
        return item["text"]
    return image_input(item["image"], name, model) if item.keys() == {"image"} else item


def content_input(parts: Any, name: str, model: ModelInfo) -> Any:
    """Return the input of a content: a text, or a list of parts with at most one image.

    Several texts are joined with line breaks.

    Raises:
        BadRequest: it has another form.
        Unprocessable: it has several images, parts of other types, or the model reads no images.
    """
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise BadRequest(f"{name} must be a text or {PARTS}, and has {json_type(parts)}.")
    images = [_image_of(part, name, model) for part in parts if _is_image(part)]
    text = "\n".join(_texts([part for part in parts if not _is_image(part)], name, model))
    if len(images) > 1:
        raise Unprocessable(f"{name} has {len(images)} images; send each by itself.")
    if not images:
        return text
    return {"text": text, **images[0]} if text else images[0]


def _is_image(part: Mapping[str, Any]) -> bool:
    return "image_url" in part or part.get("type") in ("image_url", "image")


def _image_of(part: Mapping[str, Any], name: str, model: ModelInfo) -> dict[str, Any]:
    """Return the input of the image of a part."""
    value = part.get("image_url", part.get("image"))
    image = image_input(value.get("url") if isinstance(value, Mapping) else value, name, model)
    if not isinstance(image["image"], str):
        raise BadRequest(
            f'{name} has an image of another form; send {{"image_url": {{"url": …}}}}.'
        )
    return image


def _texts(parts: Sequence[Mapping[str, Any]], name: str, model: ModelInfo) -> list[str]:
    read = "texts and images" if model.task.wire.reads_media else "texts"
    for part in parts:
        kind = part.get("type", "text")
        if not isinstance(part.get("text"), str) or kind not in ("text", "input_text"):
            raise Unprocessable(
                f"{name} has a part of the type {quote(kind)} without a text, and this model reads"
                f" {read} only."
            )
    return [part["text"] for part in parts]
