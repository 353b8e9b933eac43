"""Texts and images in the bodies of embedding servers, as the inputs of a task.

"a text", {"text": "a text"}, {"image": "<base64>"}                items of Jina's bodies
{"type": "text", "text": "a text"}                                 parts of a content
{"type": "image_url", "image_url": {"url": "data:image/png;…"}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from typing_extensions import TypedDict

from ..config.messages import quote
from ..errors import BadRequest, Unprocessable
from ..types.model_info import ModelInfo
from ..types.parameters import json_type

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
