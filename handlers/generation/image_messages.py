"""The messages of a chat with images, in OpenAI's form and in that of transformers.

{"type": "text", "text": "What is it?"}
{"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}
{"type": "image", "image": "<base64>"}, or with `url` or `base64` in place of `image`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from handlers.errors import BadRequest
from handlers.generation.chat import Message, check_messages
from handlers.media.files import MediaFiles, RemoteFile

IMAGE_KEYS = ("image", "url", "base64")
IMAGE_PART = {"type": "image"}
# A space of no width, which makes plain text of the name of a token.
ZERO_WIDTH_SPACE = "\u200b"
# The code of templates that read the type of a part; other templates read texts as contents.
READS_PARTS = re.compile(r"""\[['"]type['"]\]|\.type\b|selectattr\(\s*['"]type""")


class ImageUrl(TypedDict):
    """The location of an image: a data URI, or a URL of an allowed host."""

    url: str
    detail: NotRequired[str]


class ContentPart(TypedDict):
    """A text or an image in a message."""

    type: Literal["text", "image_url", "image"]
    text: NotRequired[str]
    image_url: NotRequired[ImageUrl | str]
    image: NotRequired[str]
    url: NotRequired[str]
    base64: NotRequired[str]


class ImageMessage(TypedDict):
    """One message of a chat, whose content may have images."""

    role: str
    content: str | list[ContentPart]


@dataclass(frozen=True)
class ImageChat:
    """The messages of a chat, and its images in their order.

    Attributes:
        messages: the messages, with texts as contents.
        parts: the parts of each message, with only the type of an image; None for a text.
        files: the files of the images.
    """

    messages: Sequence[Message]
    parts: Sequence[Sequence[Mapping[str, str]] | None]
    files: Sequence[bytes | RemoteFile]

    def escaped(self, tokens: Sequence[str]) -> ImageChat:
        """Return the chat with texts in which the names of some tokens are no tokens."""
        messages: list[Any] = [
            {**each, "content": _escaped(each["content"], tokens)} for each in self.messages
        ]
        parts = [
            None
            if of_message is None
            else [
                part if part is IMAGE_PART else {**part, "text": _escaped(part["text"], tokens)}
                for part in of_message
            ]
            for of_message in self.parts
        ]
        return replace(self, messages=messages, parts=parts)

    def for_template(self, template: str, image_token: str) -> list[Any]:
        """Return the messages with parts or, for a template that needs texts, image tokens."""
        reads_parts = bool(READS_PARTS.search(template))
        pairs = zip(self.messages, self.parts, strict=True)
        return [_turn(message, parts, image_token, reads_parts) for message, parts in pairs]


def read_chat(given: Sequence[Any], files: MediaFiles, max_characters: int) -> ImageChat:
    """Return the messages of a chat, with texts and images as contents.

    Raises:
        RequestError: a message is malformed, too long, or has an image that cannot be read.
    """
    texts: list[Any] = []
    parts: list[Sequence[Mapping[str, str]] | None] = []
    found: list[bytes | RemoteFile] = []
    for at, message in enumerate(given):
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, list):
            texts.append(message)
            parts.append(None)
            continue
        images = [_image_in(part, f"messages[{at}].content", files) for part in content]
        found += [image for image in images if image is not None]
        pairs = list(zip(content, images, strict=True))
        texts.append({**message, "content": [part for part, image in pairs if image is None]})
        parts.append([part if image is None else IMAGE_PART for part, image in pairs])
    return ImageChat(check_messages(texts, max_characters, len(found)), parts, found)


def _escaped(text: str, tokens: Sequence[str]) -> str:
    for token in tokens:
        text = text.replace(token, f"{token[0]}{ZERO_WIDTH_SPACE}{token[1:]}")
    return text


def _image_in(part: Any, name: str, files: MediaFiles) -> bytes | RemoteFile | None:
    """Return the file of a part that is an image; None for another part."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "image_url":
        value = part.get("image_url")
        return files.file(value.get("url") if isinstance(value, Mapping) else value, name)
    if kind != "image":
        return None
    key = next((key for key in IMAGE_KEYS if part.get(key) is not None), None)
    if key is None:
        raise BadRequest(f"{name} has an image without a file; send it under image or url.")
    return files.file(part[key], name)


def _turn(
    message: Message,
    parts: Sequence[Mapping[str, str]] | None,
    image_token: str,
    reads_parts: bool,
) -> dict[str, Any]:
    if not reads_parts:
        texts = [image_token if part is IMAGE_PART else part["text"] for part in parts or ()]
        return {**message, "content": "".join(texts) if parts else message["content"]}
    if message["role"] == "tool" or message.get("tool_calls"):
        return dict(message)
    text = {"type": "text", "text": message["content"]}
    return {**message, "content": [text] if parts is None else list(parts)}
