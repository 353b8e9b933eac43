"""Anthropic's Messages below the model's path: chats with images, tools and thinking, and streams.

    v1/messages                {"messages": [{"role": "user", "content": "…"}], "max_tokens": 20}
                               -> {"type": "message", "content": [{"type": "text", "text": "…"}], …}
    v1/messages/count_tokens   {"messages": […], "system": "…", "tools": […]}
                               -> {"input_tokens": 12}

A client's base URL is `http://host:8080/predictions/<model>/<version>`. Messages become messages
of the checkpoint's chat template: `tool_use` is a call, `tool_result` a message of the tool, and
`thinking` the reasoning before an answer. An assistant's message at the end is continued.

https://docs.anthropic.com/en/api/messages, /messages-streaming, /messages-count-tokens and /errors
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import TypedDict

from ..config.messages import enumerate_names, quote
from ..errors import BadRequest, NotFound, RequestError, TextTooLong, Unprocessable
from ..generation.chat import THINKING_ARGUMENTS
from ..generation.parameters import StopText
from ..generation.tool_syntaxes.base import ToolCall
from ..http.request import HttpRequest
from ..http.response import HttpResponse, encode_json
from ..http.streams import SERVER_SENT_EVENTS, HttpTextStream, event, streaming_started
from ..types.parameters import json_type, parse_body
from ..types.request import MAX_MESSAGES, GeneratedToken, Operation, Request, TokenCount
from ..types.structured_output import MAX_TOOLS, ArgumentsSchema, FunctionLabel
from .base import (
    NO_BODY,
    BaseProtocol,
    Key,
    KeyTable,
    ParsedRequest,
    Route,
    check_count,
    first_error,
    ignored,
    refused,
    with_names,
)
from .openai.bodies import Items, Sampling
from .openai.endpoint import Body, adapter_parameters, served_name
from .openai.errors import KeyNeedsAnother

PATH = re.compile(r"v1/messages(/.*)?")
# The values of `context_management` that leave a chat as it is; Claude Code sends the second one.
NOTHING_CLEARED: Sequence[Any] = (
    {"edits": []},
    {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
)
# Anthropic's names of what the task's sentences are about.
NAMES = {
    "inputs": "messages",
    "max_new_tokens": "max_tokens",
    "stop": "stop_sequences",
    "thinking_token_budget": "thinking.budget_tokens",
}
ERROR_TYPES: Mapping[int, str] = {
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
STOP_REASONS: Mapping[str, StopReason] = {
    "eos_token": "end_turn",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
}


class Part(BaseModel):
    """Base of the objects in a body; keys that say how Anthropic caches or bills are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class ClientTool(Part):
    """A function that the client runs; the server has no tools of its own."""

    type: str | None = None
    name: FunctionLabel
    description: str | None = None
    input_schema: ArgumentsSchema | None = None
    strict: bool | None = None


class ToolChoice(Part):
    """Whether the answer has calls, and of which tool."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _has_name(self) -> Self:
        if self.type == "tool" and self.name is None:
            raise ValueError("has no name; name the tool")
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the text-generation task."""
        named = {"type": "function", "function": {"name": self.name}}
        return {
            "tool_choice": {"any": "required", "tool": named}.get(self.type, self.type),
            "parallel_tool_calls": not self.disable_parallel_tool_use,
        }


class Thinking(Part):
    """Whether the model thinks before its answer, where its chat template reads that."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: PositiveInt | None = None
    display: Literal["summarized", "omitted", "updates"] | None = None


class OutputFormat(Part):
    """The JSON schema of the answer."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Part):
    """The format of the answer, and how much the model thinks about it."""

    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class PromptBody(Body):
    """The body of `count_tokens`, whose keys `messages` has as well."""

    messages: Annotated[Items[dict[str, Any]], Field(min_length=1)]
    system: str | Items[dict[str, Any]] | None = None
    tools: Annotated[Items[ClientTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    """The format of `output_config`, by its name before it."""
    chat_template_kwargs: dict[str, Any] | None = None

    def check_supported(self) -> None:
        for at, tool in enumerate(self.tools or ()):
            if tool.type not in (None, "custom"):
                raise Unprocessable(
                    f"tools[{at}] has the type {quote(tool.type)}, and this server runs no tools"
                    "; send tools with input_schema, which the client runs."
                )
            if tool.input_schema is None:
                raise BadRequest(f"tools[{at}].input_schema is missing; send a JSON schema.")
        if self.tool_choice is not None and self.tool_choice.type != "none" and not self.tools:
            raise KeyNeedsAnother("tool_choice", "tools")

    def turns(self, *, reads_images: bool) -> list[dict[str, Any]]:
        """Return the messages of the chat: the system's text, and the messages.

        Raises:
            RequestError: one has a block that is wrong, or that this model does not read.
        """
        reader = BlockReader(reads_images)
        messages = enumerate(self.messages)
        turns = [turn for at, each in messages for turn in reader.turns(each, f"messages[{at}]")]
        if not turns:
            raise BadRequest("messages has no text; send one.")
        if self._is_continued and "tool_calls" in turns[-1]:
            raise BadRequest(
                f"messages[{len(self.messages) - 1}] calls a tool; add a message of the user with"
                " the result."
            )
        if not self.system:
            return turns
        return [*reader.turns({"role": "system", "content": self.system}, "system"), *turns]

    @property
    def prompt_parameters(self) -> dict[str, Any]:
        """The parameters of the chat template and its tools."""
        tools = {"tools": [_function(tool) for tool in self.tools]} if self.tools else {}
        return {
            **tools,
            "chat_template_kwargs": self._template_arguments,
            "continue_final_message": self._is_continued,
            "add_generation_prompt": not self._is_continued,
        }

    @property
    def _is_continued(self) -> bool:
        """Whether the last message is an answer that goes on; one without blocks is none."""
        last = self.messages[-1]
        return last.get("role") == "assistant" and last.get("content") != []

    @property
    def _template_arguments(self) -> dict[str, Any]:
        """The arguments of the chat template; as at Anthropic, a request asks for thinking."""
        thinks = self.thinking is not None and self.thinking.type != "disabled"
        effort = self.output_config and self.output_config.effort
        given: dict[str, Any] = dict.fromkeys(THINKING_ARGUMENTS, thinks)
        efforts = {"reasoning_effort": effort} if effort else {}
        return {**given, **efforts, **(self.chat_template_kwargs or {})}


class MessagesBody(PromptBody):
    """The body of `messages`."""

    max_tokens: PositiveInt
    stop_sequences: Items[StopText] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: NonNegativeInt | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the text-generation task."""
        settings = self.model_dump(include={"max_tokens", "temperature", "top_p", "top_k"})
        sampling = Sampling(stop=self.stop_sequences, **settings).parameters
        form = (self.output_config and self.output_config.format) or self.output_format
        grammar = {"type": "json", "value": form.schema_} if form else None
        return {
            **sampling,
            **self.prompt_parameters,
            **(self.tool_choice.parameters if self.tool_choice else {}),
            **({"grammar": grammar} if grammar else {}),
            "thinking_token_budget": self.thinking and self.thinking.budget_tokens,
            "separate_reasoning": True,
        }


def _function(tool: ClientTool) -> dict[str, Any]:
    """Return a tool as chat templates read it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": {**function, "strict": tool.strict}}


Block = Mapping[str, Any]
Turn = dict[str, Any]


class BlockReader:
    """Reads the content blocks of messages as messages of the chat template.

    Args:
        reads_images: whether the model reads images.
    """

    def __init__(self, reads_images: bool) -> None:
        user: dict[str, Callable[[Block, str], Turn]] = {"text": _text}
        if reads_images:
            user["image"] = _image
        self._results = user
        self._readers: Mapping[Any, Mapping[str, Callable[[Block, str], Turn]]] = {
            "system": {"text": _text},
            "user": {**user, "tool_result": self._tool_result},
            "assistant": {
                "text": _text,
                "tool_use": _tool_use,
                "thinking": _thinking,
                "redacted_thinking": lambda block, name: {},
            },
        }

    def turns(self, message: Mapping[str, Any], name: str) -> Iterator[Turn]:
        """Yield the messages that a message stands for: each result of a tool is one.

        Raises:
            RequestError: a block is wrong, or of a type that this model does not read.
        """
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or role not in self._readers:
            raise BadRequest(
                f"{name}.role is {quote(role)}; send {enumerate_names(self._readers)}."
            )
        if isinstance(content, str):
            yield {"role": role, "content": content}
            return
        place = name if name == "system" else f"{name}.content"
        turn: Turn = {"role": role, "content": []}
        for part in self._read(content, place, self._readers[role]):
            if "role" in part:
                yield from _with_content(turn)
                yield part
                turn = {"role": role, "content": []}
            else:
                turn |= {
                    key: turn[key] + each if key in turn else each for key, each in part.items()
                }
        yield from _with_content(turn)

    def _read(
        self, blocks: Any, name: str, readers: Mapping[str, Callable[[Block, str], Turn]]
    ) -> Iterator[Turn]:
        if not isinstance(blocks, list):
            raise BadRequest(
                f"{name} must be a text or a list of blocks, and is {json_type(blocks)}."
            )
        for at, block in enumerate(blocks):
            if not isinstance(block, dict):
                raise BadRequest(f"{name}[{at}] must be an object, and is {json_type(block)}.")
            kind = block.get("type")
            if not isinstance(kind, str) or kind not in readers:
                raise Unprocessable(
                    f"{name}[{at}] has the type {quote(kind)}, and this model reads"
                    f" {enumerate_names(readers)} there; leave it out."
                )
            yield readers[kind](block, f"{name}[{at}]")

    def _tool_result(self, block: Block, name: str) -> Turn:
        content = block.get("content") or ""
        if not isinstance(content, str):
            parts = self._read(content, f"{name}.content", self._results)
            content = [part for each in parts for part in each["content"]]
        return {
            "role": "tool",
            "tool_call_id": _string(block, "tool_use_id", name),
            "content": content,
        }


def _with_content(turn: Turn) -> Iterator[Turn]:
    """Yield a message that has anything."""
    if any(turn[key] for key in turn if key != "role"):
        yield turn


def _text(block: Block, name: str) -> Turn:
    return {"content": [{"type": "text", "text": _string(block, "text", name)}]}


def _image(block: Block, name: str) -> Turn:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(source, dict) or kind not in ("base64", "url"):
        raise Unprocessable(f"{name}.source has the type {quote(kind)}; send base64 or url.")
    place = f"{name}.source"
    if kind == "url":
        url = _string(source, "url", place)
    else:
        media_type, data = _string(source, "media_type", place), _string(source, "data", place)
        url = f"data:{media_type};base64,{data}"
    return {"content": [{"type": "image_url", "image_url": {"url": url}}]}


def _tool_use(block: Block, name: str) -> Turn:
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        raise BadRequest(f"{name}.input must be an object, and is {json_type(arguments)}.")
    function = {"name": _string(block, "name", name), "arguments": arguments}
    return {"tool_calls": [{"id": _string(block, "id", name), "function": function}]}


def _thinking(block: Block, name: str) -> Turn:
    return {"reasoning_content": _string(block, "thinking", name)}


def _string(block: Block, key: str, name: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise BadRequest(f"{name}.{key} must be a text, and is {json_type(value)}.")
    return value


class TextBlock(TypedDict):
    """Text of an answer."""

    type: Literal["text"]
    text: str
    citations: None


class ToolUseBlock(TypedDict):
    """A call of a tool, which the client runs."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ThinkingBlock(TypedDict):
    """The thoughts before an answer; they have no signature."""

    type: Literal["thinking"]
    thinking: str
    signature: str


ContentBlock = ThinkingBlock | TextBlock | ToolUseBlock


class ThinkingTokens(TypedDict):
    """Tokens of the thoughts among those written."""

    thinking_tokens: int


class MessageUsage(TypedDict):
    """Tokens read and written; no prompt is kept for another request."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens_details: NotRequired[ThinkingTokens]


class MessageResponse(TypedDict):
    """The assistant's message; `stop_sequence` is the text of `stop_sequences` that ended it."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageEvent(TypedDict, total=False):
    """An event of a stream: `message_start`, then the blocks, `message_delta`, `message_stop`.

    A block is `content_block_start`, parts as `content_block_delta`, and `content_block_stop`.
    `ping` says nothing, and `error` ends a stream.
    """

    type: str
    message: MessageResponse
    index: int
    content_block: ContentBlock
    delta: dict[str, Any]
    usage: MessageUsage


class AnthropicProblem(TypedDict):
    """What is wrong."""

    type: str
    message: str


class AnthropicError(TypedDict):
    """An error in Anthropic's shape."""

    type: Literal["error"]
    error: AnthropicProblem


class InputTokens(TypedDict):
    """How many tokens a prompt has."""

    input_tokens: int


@dataclass(frozen=True)
class MessageTemplate:
    """What all forms of one answer have.

    Attributes:
        model: the name of what answers.
        message_id: the id of the message.
        token_count: the tokens of the prompt, once they are known.
        shows_thinking: whether the message has the thoughts before an answer.
    """

    model: str
    message_id: str
    token_count: TokenCount
    shows_thinking: bool

    def begun(self) -> MessageResponse:
        """Return the message before its first token."""
        return {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(self.token_count.tokens, 0),
        }

    def complete(self, result: Mapping[str, Any]) -> MessageResponse:
        """Return the message with a result of the task."""
        text, details = result["generated_text"], result["details"]
        calls = [tool_use(call) for call in result.get("tool_calls", ())]
        message = self.begun()
        thoughts = result.get("reasoning_content") if self.shows_thinking else None
        if thoughts:
            message["content"].append({"type": "thinking", "thinking": thoughts, "signature": ""})
        # An answer without anything has an empty text, as clients read the first block.
        if text.strip() or not calls:
            message["content"].append({"type": "text", "text": text, "citations": None})
        message["content"] += calls
        reason = STOP_REASONS[details["finish_reason"]]
        message["stop_reason"] = "tool_use" if calls and reason != "max_tokens" else reason
        if message["stop_reason"] == "stop_sequence":
            message["stop_sequence"] = details["stop_sequence"]
        message["usage"] = self._usage(details["input_length"], details["generated_tokens"])
        if "reasoning_tokens" in details:
            thinking: ThinkingTokens = {"thinking_tokens": details["reasoning_tokens"]}
            message["usage"]["output_tokens_details"] = thinking
        return message

    def _usage(self, read: int, written: int) -> MessageUsage:
        return {
            "input_tokens": read,
            "output_tokens": written,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }


def tool_use(call: Mapping[str, Any]) -> ToolUseBlock:
    """Return the block of a tool call, with an id."""
    function, number = call["function"], uuid.uuid4().hex[:24]
    arguments = json.loads(function["arguments"])
    return {
        "type": "tool_use",
        "id": f"toolu_{number}",
        "name": function["name"],
        "input": arguments,
    }


class MessageStream(HttpTextStream):
    """Sends a message as events, with its blocks one after another."""

    def __init__(self, http_request: HttpRequest, template: MessageTemplate) -> None:
        super().__init__(http_request)
        self._template = template
        # The number and the type of the block that was sent last, and the number of sent calls.
        self._index, self._kind, self._calls = -1, "", 0

    @property
    def has_begun(self) -> bool:
        return super().has_begun or self._index >= 0

    def part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        if self._kind != "text":
            # Blank text before a call is none of the message.
            text = self.emitted if self.emitted.strip() else ""
        return self._text(text) if text else b""

    def reasoning_part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        return self._thoughts(text) if self._template.shows_thinking else b""

    def emit_calls(self, calls: Sequence[ToolCall]) -> None:
        if self.can_send:
            self.send(self._new_calls([call.as_json for call in calls]))

    def rest(self, result: Mapping[str, Any]) -> bytes:
        """Return the events of the part of a result that was not sent, and of the end."""
        message = self._template.complete(result)
        parts: list[bytes] = []
        for block in message["content"]:
            if block["type"] == "thinking":
                thoughts = block["thinking"][len(self.emitted_reasoning) :]
                parts.append(self._thoughts(thoughts) if thoughts else b"")
            elif block["type"] == "text" and not self._calls:
                sent = self.emitted if self._kind == "text" else ""
                parts.append(self._text(block["text"].removeprefix(sent)))
        parts.append(self._new_calls(result.get("tool_calls", ())))
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
        end = _event("message_delta", delta=delta, usage=message["usage"])
        return b"".join([*parts, self._stop(), end, _event("message_stop")])

    def _thoughts(self, text: str) -> bytes:
        """Return the events of new thoughts, in the last block or in a new one."""
        start = b""
        if self._kind != "thinking":
            start = self._start({"type": "thinking", "thinking": "", "signature": ""})
        return start + self._delta({"type": "thinking_delta", "thinking": text})

    def _text(self, text: str) -> bytes:
        """Return the events of new text, in the last block or in a new one."""
        start = b""
        if self._kind != "text":
            start = self._start({"type": "text", "text": "", "citations": None})
        return start + (self._delta({"type": "text_delta", "text": text}) if text else b"")

    def _new_calls(self, calls: Sequence[Mapping[str, Any]]) -> bytes:
        """Return the events of the calls that were not sent, each a block."""
        new, self._calls = calls[self._calls :], len(calls)
        parts = []
        for block in map(tool_use, new):
            written = encode_json(block["input"]).decode()
            delta = {"type": "input_json_delta", "partial_json": written}
            parts += [self._start({**block, "input": {}}), self._delta(delta)]
        return b"".join(parts)

    def _start(self, block: ContentBlock) -> bytes:
        """Return the events of the end of the last block, and of the start of a new one."""
        is_first = self._index < 0
        before = (
            _event("message_start", message=self._template.begun()) if is_first else self._stop()
        )
        self._index, self._kind = self._index + 1, block["type"]
        start = _event("content_block_start", index=self._index, content_block=block)
        return before + start + (_event("ping") if is_first else b"")

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _stop(self) -> bytes:
        return _event("content_block_stop", index=self._index)


def _event(name: str, **facts: Any) -> bytes:
    """Return an event, a :class:`MessageEvent`."""
    return event({"type": name, **facts}, name)


KEYS: Mapping[str, Key] = {
    # How Anthropic caches, bills and runs a request.
    **ignored(
        "cache_control",
        "diagnostics",
        "inference_geo",
        "metadata",
        "service_tier",
        "speed",
        "user_profile_id",
        "workspace_id",
    ),
    **refused(container=[], context_management=[*NOTHING_CLEARED], mcp_servers=[]),
}
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
TOOL = {
    "name": "find_animal",
    "input_schema": {"type": "object", "properties": {"animal": {"enum": ["fox", "bear"]}}},
}
ROUTE = Route(
    "v1/messages",
    name="createMessage",
    server="Anthropic",
    summary="Answer a chat, by the checkpoint's own chat template.",
    response=MessageResponse,
    error=AnthropicError,
    abilities=("continues_prompts",),
    body=MessagesBody,
    keys=KeyTable.of(
        MessagesBody,
        KEYS,
        ignored("cache_salt", "mm_payload", "return_mm_kwargs"),
        refused(kv_transfer_params=[], ec_transfer_params=[], vllm_xargs=[], watermarking=False),
    ),
    examples=lambda _: {
        "one": {"messages": MESSAGES, "system": "Tell a story.", "max_tokens": 8},
        "tools": {"messages": MESSAGES, "tools": [TOOL], "max_tokens": 8},
        "stream": {"messages": MESSAGES, "max_tokens": 8, "stream": True},
    },
    description="""\
With `stream: true` the answer comes as server-sent events, each with the name of its type.""",
    stream=SERVER_SENT_EVENTS,
    part=MessageEvent,
)
COUNT_ROUTE = Route(
    "v1/messages/count_tokens",
    name="countTokens",
    server="Anthropic",
    summary="Count the tokens of a chat, with its tools.",
    response=InputTokens,
    error=AnthropicError,
    abilities=("continues_prompts",),
    body=PromptBody,
    keys=KeyTable.of(PromptBody, KEYS),
    examples=lambda _: {"one": {"messages": MESSAGES, "tools": [TOOL]}},
)


class Protocol(BaseProtocol):
    """Requests of Anthropic's clients; without adapters, `model` may be any name."""

    body_keys = NO_BODY
    routes = (ROUTE, COUNT_ROUTE)
    _routes: ClassVar[Mapping[str, Route]] = {each.path: each for each in routes}

    def recognises(self, http_request: HttpRequest) -> bool:
        return PATH.fullmatch(http_request.path) is not None

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        route = self._routes.get(http_request.path)
        if route is None:
            raise NotFound(
                f"There is no {http_request.path} here; there are {enumerate_names(self._routes)}."
            )
        http_request = route.check(http_request, self.model)
        body = self._read(route, http_request.content)
        messages = body.turns(reads_images=self.model.task.wire.reads_media)
        if not isinstance(body, MessagesBody):
            request = Request(messages, body.prompt_parameters)
            return ParsedRequest(http_request, [request], call=Operation.TOKENIZE)
        count = TokenCount()
        name = served_name(self.model, body.model)
        shows = body.thinking is None or body.thinking.display != "omitted"
        template = MessageTemplate(name, f"msg_{uuid.uuid4().hex[:24]}", count, shows)
        stream = MessageStream(http_request, template) if body.stream else None
        parameters = {**body.parameters, **adapter_parameters(self.model, body.model)}
        request = Request(messages, parameters, stream=stream, token_count=count)
        return ParsedRequest(http_request, [request], template)

    def _read(self, route: Route, content: Any) -> PromptBody:
        messages = content.get("messages") if isinstance(content, dict) else None
        if isinstance(messages, list):
            check_count(len(messages), "messages", MAX_MESSAGES)
        body: PromptBody = parse_body(route.body, content)
        body.check_supported()
        return body

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        if error := first_error(outcomes, None):
            error = with_names(error, NAMES)
            if streaming_started(parsed.requests):
                return SERVER_SENT_EVENTS.response(event(self.error_body(error), "error"))
            return self.error_response(parsed.http_request, error)
        (outcome,), (request,) = outcomes, parsed.requests
        if parsed.context is None:
            return HttpResponse(encode_json(InputTokens(input_tokens=len(outcome))))
        (result,) = outcome
        if isinstance(request.stream, MessageStream):
            return SERVER_SENT_EVENTS.response(request.stream.rest(result))
        return HttpResponse(encode_json(parsed.context.complete(result)))

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        if isinstance(error, TextTooLong):
            # Anthropic's status and words, which clients look for.
            error = BadRequest(f"prompt is too long: {error}")
        return super().error_response(http_request, error)

    def error_body(self, error: RequestError) -> AnthropicError:
        default = "api_error" if error.status >= 500 else "invalid_request_error"
        kind = ERROR_TYPES.get(error.status, default)
        return {"type": "error", "error": {"type": kind, "message": str(error)}}
