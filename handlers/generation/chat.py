"""The messages of a chat to a prompt, by the checkpoint's chat template.

A template with tools reads calls and results in the form of OpenAI and transformers:

    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {…}}}]}
    {"role": "tool", "tool_call_id": "…", "content": "…"}

A template without tools gets their text as contents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from typing import Any, Literal, NotRequired

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from ..config.messages import quote
from ..errors import BadRequest, RequestError, RequestTooLarge, Unprocessable, attempt, summarize
from ..types.parameters import check_setting, check_text, json_type
from ..types.request import MAX_MESSAGES
from ..types.structured_output import CUSTOM_INPUT, MAX_TOOLS, Tool
from .tool_syntaxes import HERMES, find_tool_syntax
from .tool_syntaxes.base import ToolCall, ToolSyntax

MAX_ROLE = 64
# OpenAI's role of instructions, which only newer templates have.
DEVELOPER, SYSTEM = "developer", "system"
# The roles for a template that does not know a role; `function` is OpenAI's former name of `tool`.
OTHER_ROLES: Mapping[str, str] = {DEVELOPER: SYSTEM, "function": "tool"}
# The errors of templates: `raise_exception`, or an argument of an unexpected type.
REFUSALS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
# Stands for a file in messages without a text.
FILE = "\N{OBJECT REPLACEMENT CHARACTER}"
# The text after a message that shows whether the prompt contains the message.
MARK = "x7q{}y"
# The arguments of a template that requests do not set.
RESERVED = frozenset(
    {"messages", *signature(PreTrainedTokenizerBase.apply_chat_template).parameters} - {"kwargs"}
)
Turn = dict[str, Any]
MAX_NAME = 256
# The keys of texts in parts, by the types of chats and of responses.
TEXT_KEYS: Mapping[str, str] = {
    "text": "text",
    "refusal": "refusal",
    "input_text": "text",
    "output_text": "text",
}
# The keys of the thoughts before an answer; templates read one of these.
REASONING = ("reasoning_content", "reasoning")
# Other names that templates read: gpt-oss' and LFM2.5's, and Cohere's.
THINKING, TOOL_PLAN = "thinking", "tool_plan"
# The arguments with which templates turn thoughts on and off.
THINKING_ARGUMENTS = ("enable_thinking", "thinking")
# A template that reads one of these reads the other argument as well.
ALTERNATIVES: Mapping[str, Sequence[str]] = {"reasoning_effort": THINKING_ARGUMENTS}
# The texts for a template without tools.
INSTRUCTIONS = """\
You can call functions. Each line describes one, with the JSON schema of its parameters:
{functions}
To call a function, answer with its name and its arguments:
{call}"""
RESULT_START, RESULT_END = "<tool_response>\n", "\n</tool_response>"


class FunctionCall(TypedDict):
    """The name of a function, and its arguments as an object or its JSON text."""

    name: str
    arguments: str | dict[str, Any]


class MessageCall(TypedDict):
    """A call of a tool in a message."""

    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionCall


class Message(TypedDict):
    """One turn of a chat; `role` is most often `system`, `user`, `assistant` or `tool`."""

    role: str
    content: str
    name: NotRequired[str]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[MessageCall]]
    tool_call_id: NotRequired[str]


@dataclass(frozen=True)
class TemplateOptions:
    """The arguments of a chat template other than the messages and the tools.

    Attributes:
        add_generation_prompt: whether the prompt ends where the assistant's message begins.
        continue_final_message: whether the prompt ends within the last message.
        arguments: further arguments; the template may ignore them.
        required: further arguments that the template must read.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)

    def check(self, template: str) -> None:
        """Check that a template takes the arguments.

        Raises:
            BadRequest: they exclude one another, or one has a reserved name.
            Unprocessable: the template does not read a required one.
        """
        if self.add_generation_prompt and self.continue_final_message:
            raise BadRequest(
                "continue_final_message and add_generation_prompt exclude one another; set one of"
                " them."
            )
        taken = next((name for name in self.arguments if name in RESERVED), None)
        if taken is not None:
            raise BadRequest(
                f"chat_template_kwargs has {quote(taken)}, which is reserved; leave it out."
            )
        unread = next((name for name in self.required if not _is_read(template, name)), None)
        if unread is not None:
            raise Unprocessable(
                f"{unread} is not read by the chat template of this model; leave it out."
            )

    @property
    def for_template(self) -> dict[str, Any]:
        """The arguments of `apply_chat_template`."""
        return {
            **self.arguments,
            **self.required,
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": self.continue_final_message,
        }


def check_messages(given: Sequence[Any], max_characters: int, files: int = 0) -> list[Message]:
    """Return the messages of a chat with texts as contents; parts of type `text` are joined.

    Args:
        given: the messages.
        max_characters: the maximum number of characters.
        files: the number of files in the messages; with files, the text may be empty.

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
    texts = [
        f"{each['content']}{each.get(REASONING[0], '')}{_calls_text(each)}" for each in messages
    ]
    check_text("".join(texts) or FILE * files, "messages", max_characters)
    return messages


def chat_template(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Tool]) -> str:
    """Return the checkpoint's chat template; some checkpoints have another one for tools.

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

    A template without tools gets their text, and one without the role of a developer gets the
    messages of a developer under the role of the system.

    Args:
        messages: the messages.
        tokenizer: the tokenizer, which has the template.
        max_characters: the maximum number of characters in the prompt.
        tools: functions that the model may call.
        options: further arguments of the template.

    Raises:
        Unprocessable: the checkpoint has no chat template.
        BadRequest: the template refuses the messages, or omits one of them.
        RequestTooLarge: the prompt has more characters than allowed.
    """
    template = chat_template(tokenizer, tools)
    options = options or TemplateOptions()
    options.check(template)
    given: dict[str, Any] = {"chat_template": template, **options.for_template}
    known = [_with_supported_role(message, template) for message in messages]
    if reads(template, "tools"):
        turns = template_turns(known, find_tool_syntax(template))
        given["tools"] = [tool.for_template for tool in tools] or None
    else:
        turns = text_turns(known, tools)
    try:
        return _checked_prompt(turns, tokenizer, given, max_characters)
    except BadRequest:
        # A template for lists of parts may refuse texts, such as the results of tools.
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
    try:
        prompt = _render(turns, tokenizer, given)
    except REFUSALS as error:
        raise BadRequest(
            f"The model's chat template refuses the messages: {summarize(error)}."
        ) from None
    prompt = check_text(prompt, "The prompt of the chat template", max_characters)
    _check_completeness(prompt, turns, tokenizer, given)
    return prompt


def _with_supported_role(message: Message, template: str) -> Message:
    """Return a message, under another role for the same if the template knows its role by it."""
    role = message["role"]
    if role not in OTHER_ROLES or knows_role(template, role):
        return message
    return {**message, "role": OTHER_ROLES[role]}


def _check_completeness(
    prompt: str,
    turns: Sequence[Turn],
    tokenizer: PreTrainedTokenizerBase,
    options: Mapping[str, Any],
) -> None:
    """Check that the prompt has every message: templates omit messages of unknown roles.

    The text of a message with tool calls may be omitted.

    Raises:
        BadRequest: a message is omitted.
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
        one_marked = [turn if place == at else each for place, each in enumerate(turns)]
        # A template may write a message in another form, without the mark.
        if _try_render(one_marked, tokenizer, options) == prompt:
            raise BadRequest(
                f"The model's chat template leaves out a message of the role {quote(role)}; send"
                " its text in a message of the user or the system."
            )


def _marked(turns: Sequence[Turn]) -> Iterator[tuple[int, Turn]]:
    """Yield the number of each message with text, and the message with a mark after its text."""
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
    """Return a prompt; an empty one if the template refuses the messages."""
    try:
        return _render(turns, tokenizer, options)
    except REFUSALS:
        return ""


def _render(
    turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]
) -> str:
    """Apply a template, which may take the messages in another form."""
    try:
        return _apply(turns, tokenizer, options)
    except TemplateError:
        others = [_without_thinking(turn) for turn in turns]
        if others == list(turns):
            raise
        return _apply(others, tokenizer, options)


def _apply(
    turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]
) -> str:
    """Apply a template; the arguments of calls are objects, or texts if the template needs that."""
    options = {**options, "tokenize": False}
    try:
        return str(tokenizer.apply_chat_template(list(turns), **options))
    except TypeError:
        texts = [with_text_arguments(turn) for turn in turns]
        return str(tokenizer.apply_chat_template(texts, **options))


def _message(item: Any, name: str) -> Message:
    if not isinstance(item, dict):
        raise BadRequest(f'{name} must be {{"role": …, "content": …}}, and is {json_type(item)}.')
    item = with_plain_parts(item)
    role = check_setting(item.get("role"), f"{name}.role", MAX_ROLE)
    content = item.get("content")
    if content is None and role == "assistant":
        # A message that calls a tool has no text, and OpenAI's client sends a refusal next to it.
        content = item.get("refusal") or ""
    message: Message = {"role": role, "content": _content(content, f"{name}.content")}
    if item.get("name") is not None:
        message["name"] = check_setting(item["name"], f"{name}.name", MAX_NAME)
    for key in REASONING:
        if not item.get(key):
            continue
        if not isinstance(item[key], str):
            raise BadRequest(f"{name}.{key} must be a text, and is {json_type(item[key])}.")
        message["reasoning_content"] = item[key]
    if item.get("tool_call_id") is not None:
        call_id = check_setting(item["tool_call_id"], f"{name}.tool_call_id", MAX_NAME)
        message["tool_call_id"] = call_id
    if item.get("tool_calls"):
        message["tool_calls"] = check_calls(item["tool_calls"], f"{name}.tool_calls")
    elif item.get("function_call"):
        # OpenAI's name of a call before there were several.
        called = {"function": item["function_call"]}
        message["tool_calls"] = [_check_call(called, f"{name}.function_call")]
    return message


def _calls_text(message: Message) -> str:
    """Return the JSON text of the calls of a message, whose characters count."""
    calls = message.get("tool_calls")
    return to_json(calls) if calls else ""


def with_plain_parts(item: Any) -> Any:
    """Return a message whose parts with a text are of the type `text`, and no thoughts."""
    content = item.get("content") if isinstance(item, Mapping) else None
    if not isinstance(content, list):
        return item
    thoughts = [text for part in content if (text := _thoughts_of(part)) is not None]
    parts = [_plain_part(part) for part in content if _thoughts_of(part) is None]
    plain = {**item, "content": parts}
    if thoughts and plain.get(REASONING[0]) is None:
        plain[REASONING[0]] = "\n".join(thoughts)
    return plain


def _plain_part(part: Any) -> Any:
    text = _text_of(part)
    return part if text is None else {"type": "text", "text": text}


def _thoughts_of(part: Any) -> str | None:
    """Return the thoughts of a part of type `thinking`, which Mistral's clients send as parts."""
    thoughts = part.get("thinking") if isinstance(part, dict) else None
    if isinstance(thoughts, list) and all(_text_of(each) is not None for each in thoughts):
        thoughts = "".join(str(_text_of(each)) for each in thoughts)
    is_thoughts = isinstance(thoughts, str) and part.get("type") == "thinking"
    return thoughts if is_thoughts else None


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
    """Return the text of a part with a text; None for another part."""
    # As vLLM does, a part without a type is read as one with a text.
    kind = part.get("type", "text") if isinstance(part, dict) else None
    text = part.get(TEXT_KEYS[kind]) if isinstance(kind, str) and kind in TEXT_KEYS else None
    return text if isinstance(text, str) else None


def reads(template: str, name: str) -> bool:
    """Return whether the code of a template reads an argument."""
    return name in _variables(template)


def _is_read(template: str, name: str) -> bool:
    return any(reads(template, each) for each in (name, *ALTERNATIVES.get(name, ())))


def knows_role(template: str, role: str) -> bool:
    """Return whether the code of a template has the name of a role."""
    return role in _constants(template)


class _Generation(Extension):
    """transformers' tag around the messages of an assistant."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=32)
def _variables(template: str) -> frozenset[str]:
    """Return the names of the variables that a template does not set itself."""
    return frozenset(find_undeclared_variables(_parsed(template)))


@lru_cache(maxsize=32)
def _constants(template: str) -> frozenset[str]:
    """Return the string constants in the code of a template."""
    constants = _parsed(template).find_all(nodes.Const)
    return frozenset(each.value for each in constants if isinstance(each.value, str))


def _parsed(template: str) -> nodes.Template:
    """Return the syntax tree of a template; an empty one if the template has a syntax error."""
    environment = Environment(autoescape=True, extensions=["jinja2.ext.loopcontrols", _Generation])
    try:
        return environment.parse(template)
    except TemplateSyntaxError:
        return environment.parse("")


def check_calls(given: Any, name: str) -> list[MessageCall]:
    """Return the calls of a message, with objects as arguments.

    Raises:
        BadRequest: they are no list, or too many, or one has no name or no arguments.
    """
    if not isinstance(given, list) or len(given) > MAX_TOOLS:
        raise BadRequest(f"{name} must be a list of at most {MAX_TOOLS} calls.")
    return [_check_call(item, f"{name}[{at}]") for at, item in enumerate(given)]


def template_turns(messages: Sequence[Mapping[str, Any]], syntax: ToolSyntax) -> list[Turn]:
    """Return messages for a template with tools: ids have the template's form."""
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    numbers = iter(range(len(calls)))
    # Of calls with the same id, a result belongs to the last one before it.
    ids: dict[str, str] = {}
    turns: list[Turn] = []
    for message in messages:
        turn = _with_reasoning(message)
        if "tool_calls" in turn:
            named = [_with_id(call, next(numbers), syntax) for call in turn["tool_calls"]]
            pairs = zip(turn["tool_calls"], named, strict=True)
            ids.update({old["id"]: new["id"] for old, new in pairs if "id" in old})
            turn["tool_calls"] = named
        if "tool_call_id" in turn:
            given = turn["tool_call_id"]
            turn["tool_call_id"] = ids.get(given) or syntax.call_id(given)
        turns.append(turn)
    return turns


def _with_id(call: Mapping[str, Any], number: int, syntax: ToolSyntax) -> dict[str, Any]:
    """Return a call with an id in the template's form, which may have its name and number."""
    made = syntax.call_id(call.get("id", ""), call["function"]["name"], number)
    return {**call, "id": made} if made else dict(call)


def _with_reasoning(message: Mapping[str, Any]) -> Turn:
    """Return a message with its reasoning under each key that templates read."""
    reasoning = message.get(REASONING[0])
    keys = (*REASONING, THINKING, TOOL_PLAN)
    return {**message, **({} if reasoning is None else dict.fromkeys(keys, reasoning))}


def _without_thinking(turn: Turn) -> Turn:
    """Return a message without its thoughts where it has a text and calls.

    The template of gpt-oss refuses all three, and takes the text of a message with calls as its
    thoughts.
    """
    if not (turn.get("tool_calls") and turn["content"]):
        return turn
    return {key: turn[key] for key in turn if key != THINKING}


def with_text_arguments(turn: Turn) -> Turn:
    """Return a message for a template that needs JSON texts as the arguments of calls."""
    if "tool_calls" not in turn:
        return turn
    functions = [call["function"] for call in turn["tool_calls"]]
    texts = [{**each, "arguments": to_json(each["arguments"])} for each in functions]
    pairs = zip(turn["tool_calls"], texts, strict=True)
    return {**turn, "tool_calls": [{**call, "function": function} for call, function in pairs]}


def text_turns(messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> list[Turn]:
    """Return messages for a template without tools: calls and results are contents.

    The system message, the first one, describes the tools.
    """
    turns: list[Turn] = []
    for message in messages:
        content = message["content"]
        if calls := message.get("tool_calls"):
            functions = [call["function"] for call in calls]
            written = HERMES.write(
                [ToolCall(each["name"], to_json(each["arguments"])) for each in functions]
            )
            content = _with_text(content, written, "\n")
        if message["role"] != "tool":
            own = {key: message[key] for key in ("name", REASONING[0]) if key in message}
            turns.append({"role": message["role"], "content": content, **_with_reasoning(own)})
        else:
            _append_result(turns, f"{RESULT_START}{content}{RESULT_END}")
    return _with_instructions(turns, tools) if tools else turns


def in_parts(turns: Sequence[Turn]) -> list[Turn]:
    """Return messages whose contents are lists of parts."""
    return [
        {**turn, "content": [{"type": "text", "text": turn["content"]}]}
        if isinstance(turn["content"], str)
        else turn
        for turn in turns
    ]


def to_json(value: Any) -> str:
    """Return the JSON text of a value for a prompt."""
    return json.dumps(value, ensure_ascii=False)


def _check_call(item: Any, name: str) -> MessageCall:
    function = item.get("function") if isinstance(item, dict) else None
    if isinstance(item, dict) and isinstance(custom := item.get("custom"), dict):
        function = {**custom, "arguments": {CUSTOM_INPUT: custom.get("input")}}
    arguments = _to_object(function.get("arguments")) if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(arguments, dict):
        raise BadRequest(
            f'{name} must be {{"function": {{"name": …, "arguments": …}}}}; send the arguments as'
            " an object, or its JSON text."
        )
    called = check_setting(function.get("name"), f"{name}.function.name", MAX_NAME)
    call: MessageCall = {
        "type": "function",
        "function": {"name": called, "arguments": arguments},
    }
    if item.get("id") is not None:
        call["id"] = check_setting(item["id"], f"{name}.id", MAX_NAME)
    return call


def _to_object(arguments: Any) -> Any:
    """Return arguments as an object; an empty text, which some clients send, is no arguments."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None


def _with_text(content: Any, text: str, separator: str) -> Any:
    if isinstance(content, str):
        return separator.join(filter(None, [content, text]))
    return [*content, {"type": "text", "text": separator + text}]


def _append_result(turns: list[Turn], text: str) -> None:
    """Append the result of a call, in one message with the results before it.

    Many templates refuse two messages of the user in a row.
    """
    last = turns[-1]["content"] if turns and turns[-1]["role"] == "user" else ""
    if isinstance(last, str) and last.endswith(RESULT_END):
        turns[-1]["content"] += f"\n{text}"
    else:
        turns.append({"role": "user", "content": text})


def _with_instructions(turns: list[Turn], tools: Sequence[Tool]) -> list[Turn]:
    functions = "\n".join(to_json(tool.for_template["function"]) for tool in tools)
    text = INSTRUCTIONS.format(functions=functions, call=HERMES.write([ToolCall("…", "{…}")]))
    if turns[0]["role"] == "system":
        content = _with_text(turns[0]["content"], text, "\n\n")
        return [{**turns[0], "content": content}, *turns[1:]]
    return [{"role": "system", "content": text}, *turns]
