"""The messages of a chat to a prompt, by the checkpoint's chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from handlers.config.quoting import quote
from handlers.errors import (
    BadRequest,
    RequestError,
    RequestTooLarge,
    Unprocessable,
    attempt,
    summarize,
)
from handlers.generation.template_options import TemplateOptions, knows_role, reads
from handlers.generation.tool_calls import syntax_of
from handlers.generation.tool_messages import (
    MAX_NAME,
    MessageCall,
    Turn,
    check_calls,
    in_parts,
    template_turn,
    text_turns,
    to_json,
    with_text_arguments,
)
from handlers.types.request import MAX_MESSAGES
from handlers.types.structured_output import Tool
from handlers.types.text_checks import check_setting, check_text, json_type

MAX_ROLE = 64
# OpenAI's name for the instructions of a developer, which newer models know.
DEVELOPER, SYSTEM = "developer", "system"
# How templates fail: `raise_exception`, or an argument of another type than they expect.
REFUSALS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
# Stands for a file in messages without a text.
FILE = "\N{OBJECT REPLACEMENT CHARACTER}"
# Is written after a message to see whether the prompt has it.
MARK = "x7q{}y"


class Message(TypedDict):
    """One turn of a chat; `role` is most often `system`, `user`, `assistant` or `tool`."""

    role: str
    content: str
    name: NotRequired[str]
    tool_calls: NotRequired[list[MessageCall]]
    tool_call_id: NotRequired[str]


def check_messages(given: Sequence[Any], max_characters: int, files: int = 0) -> list[Message]:
    """Return the messages of a chat with texts as contents; parts of type `text` are joined.

    Args:
        given: the messages.
        max_characters: the maximum number of characters.
        files: the number of files in the messages, which need no text beside them.

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
    check_text("".join(texts) or FILE * files, "messages", max_characters)
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
    options: TemplateOptions | None = None,
) -> str:
    """Return the prompt that the checkpoint's chat template makes of messages and tools.

    A template that knows no tools gets texts in their place, and one that knows no developer gets
    those messages as the system's.

    Args:
        messages: the messages.
        tokenizer: the tokenizer, which has the template.
        max_characters: the maximum number of characters in the prompt.
        tools: functions that the model may call.
        options: what the template gets besides.

    Raises:
        Unprocessable: the checkpoint has no chat template.
        BadRequest: its template refuses these messages, or leaves one of them out.
        RequestTooLarge: the prompt has more characters than allowed.
    """
    template = chat_template(tokenizer, tools)
    options = options or TemplateOptions()
    options.check(template)
    given: dict[str, Any] = {"chat_template": template, **options.for_template}
    known = [_with_known_role(message, template) for message in messages]
    if reads(template, "tools"):
        turns = [template_turn(message, syntax_of(template)) for message in known]
        given["tools"] = [tool.for_template for tool in tools] or None
    else:
        turns = text_turns(known, tools)
    try:
        return _checked_prompt(turns, tokenizer, given, max_characters)
    except BadRequest:
        # A template that reads parts may read no texts, such as the results of tools.
        if not any(isinstance(turn["content"], list) for turn in turns):
            raise
        prompt = attempt(_checked_prompt, in_parts(turns), tokenizer, given, max_characters)
        if isinstance(prompt, RequestError):
            raise
        return prompt


def _checked_prompt(
    turns: Sequence[Turn],
    tokenizer: PreTrainedTokenizerBase,
    given: Mapping[str, Any],
    max_characters: int,
) -> str:
    """Return the prompt of messages in one of their forms.

    Raises:
        BadRequest: the template refuses them, or leaves one of them out.
        RequestTooLarge: the prompt has more characters than allowed.
    """
    try:
        prompt = _render(turns, tokenizer, given)
    except REFUSALS as error:
        raise BadRequest(
            f"The model's chat template refuses the messages: {summarize(error)}."
        ) from None
    prompt = check_text(prompt, "The prompt of the chat template", max_characters)
    _check_reach(prompt, turns, tokenizer, given)
    return prompt


def _with_known_role(message: Message, template: str) -> Message:
    """Return a message under a role that a template knows, where there is one for it."""
    if message["role"] != DEVELOPER or knows_role(template, DEVELOPER):
        return message
    return {**message, "role": SYSTEM}


def _check_reach(
    prompt: str,
    turns: Sequence[Turn],
    tokenizer: PreTrainedTokenizerBase,
    options: Mapping[str, Any],
) -> None:
    """Check that the prompt has every message: templates leave out roles that they do not know.

    The text of a message that calls a tool may be left out, as its calls are there.

    Raises:
        BadRequest: it lacks one.
    """
    marked = dict(_marked(turns))
    written = _try_render(
        [marked.get(at, turn) for at, turn in enumerate(turns)], tokenizer, options
    )
    roles: set[str] = set()
    for at, turn in marked.items():
        role = turn["role"]
        if MARK.format(at) in written or role in roles:
            continue
        roles.add(role)
        alone = [turn if place == at else each for place, each in enumerate(turns)]
        # A template may write a message in another form.
        if _try_render(alone, tokenizer, options) == prompt:
            raise BadRequest(
                f"The model's chat template leaves out a message of the role {quote(role)}; send"
                " its text in a message of the user or the system."
            )


def _marked(turns: Sequence[Turn]) -> Iterator[tuple[int, Turn]]:
    """Yield the number of each message with a text, and the message with a mark after it."""
    for at, turn in enumerate(turns):
        content, mark = turn["content"], MARK.format(at)
        if turn.get("tool_calls") or not content:
            continue
        if isinstance(content, str):
            yield at, {**turn, "content": content + mark}
        elif texts := [place for place, part in enumerate(content) if "text" in part]:
            parts = list(content)
            parts[texts[-1]] = {**parts[texts[-1]], "text": parts[texts[-1]]["text"] + mark}
            yield at, {**turn, "content": parts}


def _try_render(
    turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]
) -> str:
    """Return a prompt; none where the template refuses the messages."""
    try:
        return _render(turns, tokenizer, options)
    except REFUSALS:
        return ""


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
