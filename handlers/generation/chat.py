"""The messages of a chat to a prompt, by the checkpoint's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from handlers.errors import BadRequest, RequestTooLarge, Unprocessable, summarize
from handlers.generation.tool_calls import syntax_of
from handlers.generation.tool_messages import (
    MAX_NAME,
    MessageCall,
    Turn,
    check_calls,
    template_turn,
    text_turns,
    to_json,
    with_text_arguments,
)
from handlers.schemas.request import MAX_MESSAGES
from handlers.schemas.structured_output import Tool
from handlers.schemas.text_checks import check_setting, check_text, json_type

MAX_ROLE = 64


class Message(TypedDict):
    """One turn of a chat; `role` is most often `system`, `user`, `assistant` or `tool`."""

    role: str
    content: str
    name: NotRequired[str]
    tool_calls: NotRequired[list[MessageCall]]
    tool_call_id: NotRequired[str]


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
    texts = [f"{each['content']}{_calls_text(each)}" for each in messages]
    check_text("".join(texts), "messages", max_characters)
    return messages


def chat_template(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Tool]) -> str:
    """Return the checkpoint's chat template; some have one of their own for tools.

    Raises:
        Unprocessable: the checkpoint has no chat template.
    """
    if not tokenizer.chat_template:
        raise Unprocessable("This model has no chat template; send a prompt instead of messages.")
    return str(tokenizer.get_chat_template(tools=list(tools) or None))


def prompt_of(
    messages: Sequence[Message],
    tokenizer: PreTrainedTokenizerBase,
    max_characters: int,
    tools: Sequence[Tool] = (),
    *,
    add_generation_prompt: bool = True,
) -> str:
    """Return the prompt that the checkpoint's chat template makes of messages and tools.

    A template that knows no tools gets texts in their place.

    Args:
        messages: the messages.
        tokenizer: the tokenizer, which has the template.
        max_characters: the maximum number of characters in the prompt.
        tools: functions that the model may call.
        add_generation_prompt: whether it ends where the assistant's message begins.

    Raises:
        Unprocessable: the checkpoint has no chat template.
        BadRequest: its template refuses these messages.
        RequestTooLarge: the prompt has more characters than allowed.
    """
    template = chat_template(tokenizer, tools)
    options: dict[str, Any] = {
        "chat_template": template,
        "add_generation_prompt": add_generation_prompt,
    }
    if "tools" in template:
        turns = [template_turn(message, syntax_of(template)) for message in messages]
        options["tools"] = [tool.for_template for tool in tools] or None
    else:
        turns = text_turns(messages, tools)
    try:
        prompt = _render(turns, tokenizer, options)
    except (TemplateError, TypeError) as error:
        raise BadRequest(
            f"The model's chat template refuses the messages: {summarize(error)}."
        ) from None
    return check_text(prompt, "The prompt of the chat template", max_characters)


def _render(
    turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]
) -> str:
    """Apply a template to messages whose calls have objects as arguments, or else texts."""
    options = {**options, "tokenize": False}
    try:
        return str(tokenizer.apply_chat_template(list(turns), **options))
    except TypeError:
        texts = [with_text_arguments(turn) for turn in turns]
        return str(tokenizer.apply_chat_template(texts, **options))


def _message(item: Any, name: str) -> Message:
    if not isinstance(item, dict):
        raise BadRequest(f'{name} must be {{"role": …, "content": …}}, and is {json_type(item)}.')
    role = check_setting(item.get("role"), f"{name}.role", MAX_ROLE)
    content = item.get("content")
    if content is None and role == "assistant":
        content = ""  # a message that calls a tool has no text
    message: Message = {"role": role, "content": _content(content, f"{name}.content")}
    if item.get("name") is not None:
        message["name"] = check_setting(item["name"], f"{name}.name", MAX_NAME)
    if item.get("tool_call_id") is not None:
        call_id = check_setting(item["tool_call_id"], f"{name}.tool_call_id", MAX_NAME)
        message["tool_call_id"] = call_id
    if item.get("tool_calls"):
        message["tool_calls"] = check_calls(item["tool_calls"], f"{name}.tool_calls")
    return message


def _calls_text(message: Message) -> str:
    """Return the calls of a message as a text, whose characters are counted."""
    calls = message.get("tool_calls")
    return to_json(calls) if calls else ""


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
