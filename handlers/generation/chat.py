"""The messages of a chat to a prompt, by the checkpoint's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from handlers.errors import BadRequest, RequestTooLarge, Unprocessable
from handlers.schemas.request import MAX_MESSAGES
from handlers.schemas.text_checks import check_text, json_type

MAX_ROLE = 64


class Message(TypedDict):
    """One turn of a chat; `role` is most often `system`, `user` or `assistant`."""

    role: str
    content: str


def check_messages(given: Sequence[Any], max_characters: int) -> list[Message]:
    """Return the messages of a chat with texts as contents; parts of type `text` are joined.

    Raises:
        BadRequest: a message without role or text.
        RequestTooLarge: there are too many, or they have more characters than allowed.
    """
    if len(given) > MAX_MESSAGES:
        raise RequestTooLarge(
            f"messages has {len(given):,} items, and a chat has at most {MAX_MESSAGES:,}"
            "; send fewer."
        )
    messages = [_message(item, f"messages[{at}]") for at, item in enumerate(given)]
    check_text("".join(message["content"] for message in messages), "messages", max_characters)
    return messages


def prompt_of(
    messages: Sequence[Message],
    tokenizer: PreTrainedTokenizerBase,
    max_characters: int,
    *,
    add_generation_prompt: bool = True,
) -> str:
    """Return the prompt that the checkpoint's chat template makes of messages.

    Args:
        messages: the messages.
        tokenizer: the tokenizer, which has the template.
        max_characters: the maximum number of characters in the prompt.
        add_generation_prompt: whether it ends where the assistant's message begins.

    Raises:
        Unprocessable: the checkpoint has no chat template.
        BadRequest: its template refuses these messages.
        RequestTooLarge: the prompt has more characters than allowed.
    """
    if not tokenizer.chat_template:
        raise Unprocessable("This model has no chat template; send a prompt instead of messages.")
    try:
        prompt = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=add_generation_prompt
        )
    except TemplateError as error:
        reason = " ".join(str(error).split())[:200]
        raise BadRequest(f"The model's chat template refuses the messages: {reason}.") from None
    return check_text(prompt, "The prompt of the chat template", max_characters)


def _message(item: Any, name: str) -> Message:
    if not isinstance(item, dict):
        raise BadRequest(f'{name} must be {{"role": …, "content": …}}, and is {json_type(item)}.')
    role = check_text(item.get("role"), f"{name}.role", MAX_ROLE)
    content = item.get("content")
    if content is None and role == "assistant":
        return {"role": role, "content": ""}  # a message that calls a tool has no text
    return {"role": role, "content": _content(content, f"{name}.content")}


def _content(content: Any, name: str) -> str:
    if isinstance(content, str):
        return content
    texts = [_text_of(part) for part in content] if isinstance(content, list) else [None]
    if None not in texts:
        return "".join(map(str, texts))
    raise BadRequest(
        f'{name} must be a text or a list of {{"type": "text", "text": …}}'
        f", and is {json_type(content)}."
    )


def _text_of(part: Any) -> str | None:
    """Return the text of a part of a message, or of a refusal."""
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(kind) if kind in ("text", "refusal") else None
    return text if isinstance(text, str) else None
