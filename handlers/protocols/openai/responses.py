"""The endpoint `responses`: a text or a conversation to a message, tool calls, or both.

    {"input": "a text", "max_output_tokens": 20}
    -> {"object": "response", "output": [{"type": "message", "content": [{"text": "…"}]}], …}

A request is complete in itself, or goes on from an earlier one with `previous_response_id` where
the YAML's `stored_responses` keeps some. These are read and deleted at `responses/{response_id}`.

https://platform.openai.com/docs/api-reference/responses and /responses-streaming
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    BaseModel,
    Field,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from typing_extensions import TypedDict

from ...config.messages import quote, shorten
from ...errors import BadRequest, NotFound, RequestError, Unprocessable
from ...generation.parameters import ReasoningEffort, TopTokens
from ...generation.tool_syntaxes.base import ToolCall
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...http.streams import SERVER_SENT_EVENTS, HttpTextStream, event
from ...types.parameters import parse_body
from ...types.request import MAX_MESSAGES, GeneratedToken, Request
from ..base import Key, KeyTable, ParsedRequest, Route, check_count, honoured, ignored, refused
from .bodies import (
    BOOKKEEPING,
    SCHEDULING,
    Items,
    ResponseFormat,
    Sampling,
    StreamedBody,
    structured_grammar,
    with_keys_of,
)
from .endpoint import Call, Endpoint, adapter_parameters, served_name
from .errors import KeyNeedsAnother
from .generation import ABOUT_GRAMMAR, Scored, chat_logprobs, longest_prompt, scored, scored_in
from .response_items import chat_messages, chat_tool, goes_on, listed_items, with_one_system_message
from .types import OpenAIError, Response, ResponseEvent, ResponseStatus, ResponseUsage

# Stands for a method that TorchServe does not pass to a worker.
METHOD_OVERRIDE = "x-http-method-override"
INPUT_ITEMS = "input_items"
NOTHING_STORED = "nothing is stored, so send the whole conversation as input"
LOGPROBS = "message.output_text.logprobs"
# The keys of chats and completions that are none of how tokens of a response are chosen.
NOT_SAMPLED = {"model", "stream", "stream_options", "structured_outputs"}
# What `include` may name: log probabilities, and the thoughts, which items have in any case.
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")


class FormatOfText(TypedDict):
    """What a text must be; a JSON schema has its keys here."""

    type: Literal["text", "json_object", "json_schema"]
    name: NotRequired[str | None]
    description: NotRequired[str | None]
    schema: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


class TextOptions(TypedDict):
    """The format of the text; `verbosity` is `medium`."""

    format: NotRequired[FormatOfText | None]
    verbosity: NotRequired[Literal["medium"] | None]


class ReasoningOptions(TypedDict):
    """How much a model thinks; its thoughts are returned, whatever summary is asked for."""

    effort: NotRequired[ReasoningEffort | None]
    summary: NotRequired[Literal["auto", "concise", "detailed"] | None]
    generate_summary: NotRequired[Literal["auto", "concise", "detailed"] | None]


@partial(with_keys_of, chat_only=False)
class ResponseBody(StreamedBody):
    """The body of `responses`."""

    input: str | Annotated[Items[dict[str, Any]], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: str | None = None
    tools: Items[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    top_logprobs: TopTokens | None = None
    truncation: Literal["auto", "disabled"] | None = None
    # Extensions of OpenAI's API that the servers of open models have.
    stop: str | Items[str] | None = None
    seed: int | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    structured_outputs: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    include_reasoning: bool | None = None

    @field_validator("input", mode="wrap")
    @classmethod
    def _text_or_messages(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(value)
        except ValidationError:
            raise ValueError("is no input; send a text or a list of messages") from None

    def check_supported(self) -> None:
        super().check_supported()
        if not self.tools and self.tool_choice not in (None, "none", "auto"):
            raise KeyNeedsAnother("tool_choice", "tools")
        unknown = next((each for each in self.include or () if each not in INCLUDED), None)
        if unknown is not None:
            raise Unprocessable(f"include has {quote(unknown)}, which is not supported; remove it.")

    @property
    def items(self) -> Sequence[Mapping[str, Any]]:
        """The items of the input; a text is a message of the user."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return self.input

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the text-generation task, as for a chat."""
        settings = self.model_dump(include=set(Sampling.model_fields) - NOT_SAMPLED)
        returns_logprobs = LOGPROBS in (self.include or ()) or bool(self.top_logprobs)
        given = {
            "grammar": self._grammar,
            "reasoning_effort": (self.reasoning or {}).get("effort"),
            "chat_template_kwargs": self.chat_template_kwargs,
            "parallel_tool_calls": self.parallel_tool_calls,
            "tools": [chat_tool(each, f"tools[{at}]") for at, each in enumerate(self.tools or ())]
            or None,
            "tool_choice": self._tool_choice,
            "continue_final_message": goes_on(self.items) or None,
        }
        sampling = Sampling.model_validate({**settings, "max_tokens": self.max_output_tokens})
        return {
            **sampling.parameters,
            **{name: value for name, value in given.items() if value is not None},
            "separate_reasoning": True,
            "logprobs": returns_logprobs,
            "top_n_tokens": self.top_logprobs or 0,
        }

    @property
    def _tool_choice(self) -> Any:
        choice = self.tool_choice
        if not isinstance(choice, dict):
            return choice if self.tools else None
        if choice.get("type") == "allowed_tools":
            return choice
        if choice.get("type") not in ("function", "custom"):
            raise Unprocessable(
                f"tool_choice has the type {quote(choice.get('type'))}, which is not supported;"
                " send a mode, or the name of a function."
            )
        return {"type": "function", "function": {"name": choice.get("name")}}

    @property
    def _grammar(self) -> dict[str, Any] | None:
        chosen = dict((self.text or {}).get("format") or {"type": "text"})
        kind = chosen.pop("type")
        if kind == "json_schema" and chosen.get("schema") is None:
            raise BadRequest("text.format has no schema; add it.")
        named = {"json_schema": chosen} if kind == "json_schema" else {}
        grammar = ResponseFormat.model_validate({"type": kind, **named}).grammar
        structured = structured_grammar(self.structured_outputs)
        if grammar and structured:
            raise BadRequest("text.format and structured_outputs exclude one another; send one.")
        return grammar or structured


class NoSuchResponse(NotFound):
    """No response with an id is stored.

    Args:
        size: the maximum number of responses that are stored.
    """

    def __init__(self, response_id: str, size: int) -> None:
        kept = f"it keeps the last {size:,}" if size else "stored_responses of the YAML is 0"
        super().__init__(f"This server has no response {quote(response_id)}; {kept}.")


@dataclass(frozen=True)
class StoredResponse:
    """A response, and the items of the conversation that it answers."""

    response: Response
    inputs: Sequence[Mapping[str, Any]]

    @property
    def conversation(self) -> Sequence[Mapping[str, Any]]:
        """The items of the conversation up to the response."""
        return [*self.inputs, *self.response["output"]]


class ResponseStore:
    """The last responses, which later requests go on from.

    Args:
        size: the maximum number of responses.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = Lock()
        self._responses = OrderedDict[str, StoredResponse]()

    def conversation(self, response_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the items of the conversation up to a response.

        Raises:
            Unprocessable: no responses are stored.
            BadRequest: this one is not stored.
        """
        if not self.size:
            raise Unprocessable(
                f"previous_response_id cannot be done by this server; {NOTHING_STORED}."
            )
        try:
            return self.get(response_id).conversation
        except NotFound:
            raise BadRequest(
                f"previous_response_id is {quote(response_id)}, and this server has no such"
                f" response; it keeps the last {self.size:,}. Send the whole conversation as input."
            ) from None

    def get(self, response_id: str) -> StoredResponse:
        """Return a response.

        Raises:
            NoSuchResponse: it is not stored.
        """
        with self._lock:
            found = self._responses.get(response_id)
        if found is None:
            raise NoSuchResponse(response_id, self.size)
        return found

    def put(self, stored: StoredResponse) -> None:
        """Store a response, and remove the oldest one of too many."""
        with self._lock:
            self._responses[stored.response["id"]] = stored
            if len(self._responses) > self.size:
                self._responses.popitem(last=False)

    def delete(self, response_id: str) -> None:
        """Remove a response.

        Raises:
            NoSuchResponse: it is not stored.
        """
        with self._lock:
            if self._responses.pop(response_id, None) is None:
                raise NoSuchResponse(response_id, self.size)


class RetrievalQuery(BaseModel):
    """The query of a stored response, or of its input items; `include` changes nothing."""

    stream: bool = False
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


class ResponseStream(HttpTextStream):
    """Sends the items of a response as events, with their names and numbers."""

    def __init__(self, http_request: HttpRequest, template: ResponseTemplate) -> None:
        super().__init__(http_request)
        self._template, self._count, self._sent_calls = template, 0, 0
        self._items: list[Any] = []
        # Whether the last item goes on.
        self._is_open = False
        self.response: Response | None = None
        """The complete response, once :meth:`rest` has returned its last event."""

    def part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        return self._delta("message", text, self._template.logprobs(scored(tokens), text))

    def reasoning_part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        return self._delta("reasoning", text) if self._template.shows_reasoning else b""

    def emit_calls(self, calls: Sequence[ToolCall]) -> None:
        new = [call.as_json for call in calls[self._sent_calls :]]
        if new and self.can_send:
            self.send(self._calls(new))

    @property
    def has_begun(self) -> bool:
        return super().has_begun or bool(self._count)

    def rest(self, result: Mapping[str, Any]) -> bytes:
        """Return the events of the part of a result that was not sent, and of the end."""
        text, calls = result["generated_text"], result.get("tool_calls", ())
        thoughts = self._template.reasoning(result)[len(self.emitted_reasoning) :]
        parts = [self._delta("reasoning", thoughts)] if thoughts else []
        new = self.not_emitted(text)
        if new or not (self._items or calls or thoughts):
            left = (scored_in(result["details"]) or [])[self.emitted_tokens :]
            parts.append(self._delta("message", new, self._template.logprobs(left, new)))
        parts.append(self._calls(calls[self._sent_calls :]))
        status = self._template.status(result)
        parts.append(self._close(status))
        self.response = self._template.complete(result, self._items)
        return b"".join([*parts, self._event(f"response.{status}", response=self.response)])

    def failure(self, error: RequestError) -> bytes:
        """Return the last event of a response that an error ends."""
        return self._begin() + self._event("response.failed", response=self._template.failed(error))

    def _begin(self) -> bytes:
        if self._count:
            return b""
        response = self._template.begun()
        names = ("response.created", "response.in_progress")
        return b"".join([self._event(name, response=response) for name in names])

    def _delta(self, kind: str, text: str, logprobs: Sequence[Any] = ()) -> bytes:
        """Return the events of new text of a message or of thoughts."""
        goes_on = self._is_open and self._items[-1]["type"] == kind
        begin = b"" if goes_on else self._start(kind)
        part = self._part
        part["text"] += text
        if kind == "reasoning":
            return begin + self._of_part("response.reasoning_text.delta", delta=text)
        part["logprobs"] += logprobs
        return begin + self._of_part(
            "response.output_text.delta", delta=text, logprobs=list(logprobs)
        )

    def _start(self, kind: str) -> bytes:
        """Return the events that begin a message or thoughts."""
        begin = self._begin() + self._close("completed")
        item = self._template.item(kind, "", "in_progress")
        self._items.append(item)
        self._is_open = True
        index = {"output_index": len(self._items) - 1}
        added = self._event("response.output_item.added", **index, item={**item, "content": []})
        return begin + added + self._of_part("response.content_part.added", part=self._part)

    def _close(self, status: ResponseStatus) -> bytes:
        """Return the events that end the item that goes on."""
        if not self._is_open:
            return b""
        item, part = self._items[-1], self._part
        item["status"], self._is_open = status, False
        text = {"text": part["text"]}
        if item["type"] == "reasoning":
            done = self._of_part("response.reasoning_text.done", **text)
        else:
            done = self._of_part("response.output_text.done", **text, logprobs=part["logprobs"])
        ends = [
            done,
            self._of_part("response.content_part.done", part=part),
            self._event("response.output_item.done", output_index=len(self._items) - 1, item=item),
        ]
        return b"".join(ends)

    def _calls(self, calls: Sequence[Any]) -> bytes:
        """Return the events of new tool calls."""
        begin = self._begin() + self._close("completed") if calls else b""
        self._sent_calls += len(calls)
        return begin + b"".join([self._call(self._template.call(call)) for call in calls])

    def _call(self, item: dict[str, Any]) -> bytes:
        key, name = CALL_EVENTS[item["type"]]
        where = {"item_id": item["id"], "output_index": len(self._items)}
        index = {"output_index": len(self._items)}
        begun = {**item, key: "", **({"status": "in_progress"} if "status" in item else {})}
        self._items.append(item)
        return b"".join(
            [
                self._event("response.output_item.added", **index, item=begun),
                self._event(f"response.{name}.delta", **where, delta=item[key]),
                self._event(f"response.{name}.done", **where, **{key: item[key]}),
                self._event("response.output_item.done", **index, item=item),
            ]
        )

    @property
    def _part(self) -> dict[str, Any]:
        """The only part of the last item."""
        part: dict[str, Any] = self._items[-1]["content"][0]
        return part

    def _of_part(self, name: str, **facts: Any) -> bytes:
        indexes = {"output_index": len(self._items) - 1, "content_index": 0}
        return self._event(name, item_id=self._items[-1]["id"], **indexes, **facts)

    def _event(self, name: str, **facts: Any) -> bytes:
        """Return an event, a `ResponseEvent` of :mod:`hf_serve.handlers.protocols.openai.types`."""
        number, self._count = self._count, self._count + 1
        return event({"type": name, "sequence_number": number, **facts}, name)


# The keys that a tool of a response has in any case.
TOOL_DEFAULTS: Mapping[str, Any] = {"function": {"parameters": None, "strict": None}}
# The key of what a call has, and the name of its events, by the type of the item.
CALL_EVENTS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}


@dataclass(frozen=True)
class ResponseTemplate(Call[ResponseBody]):
    """What all forms of one response have.

    Attributes:
        created_at: seconds since 1970.
        stores: whether later requests may go on from it.
        inputs: the items of the conversation that it answers.
    """

    response_id: str
    created_at: int
    stores: bool
    inputs: Sequence[Mapping[str, Any]]

    @property
    def shows_reasoning(self) -> bool:
        """Whether the response has the thoughts before an answer."""
        return self.body.include_reasoning is not False

    def reasoning(self, result: Mapping[str, Any]) -> str:
        """Return the thoughts of a result that the response has."""
        return result.get("reasoning_content", "") if self.shows_reasoning else ""

    def begun(self) -> Response:
        """Return the response before its first token."""
        return self._response("in_progress")

    def status(self, result: Mapping[str, Any]) -> ResponseStatus:
        """Return whether a result is complete."""
        return "incomplete" if result["details"]["finish_reason"] == "length" else "completed"

    def complete(self, result: Mapping[str, Any], items: Sequence[Any] | None = None) -> Response:
        """Return the response with a result of the task.

        Args:
            result: the result.
            items: its items, where they were sent; new ones otherwise.
        """
        status = self.status(result)
        response = self._response(status)
        if status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        response["output"] = list(items if items is not None else self._items(result, status))
        response["usage"] = _usage(result["details"])
        return response

    def failed(self, error: RequestError) -> Response:
        """Return the response that an error ends."""
        response = self._response("failed")
        response["error"] = {"code": "server_error", "message": str(error)}
        return response

    def item(self, kind: str, text: str, status: ResponseStatus) -> dict[str, Any]:
        """Return a message of the assistant, or the thoughts before it."""
        if kind == "reasoning":
            part: dict[str, Any] = {"type": "reasoning_text", "text": text}
            own: dict[str, Any] = {"id": f"rs_{uuid.uuid4().hex}", "type": kind, "summary": []}
        else:
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            own = {"id": f"msg_{uuid.uuid4().hex}", "type": kind, "role": "assistant"}
        return {**own, "status": status, "content": [part]}

    def call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return the item of a tool call."""
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        if call["type"] == "custom":
            own = {"id": f"ctc_{uuid.uuid4().hex}", "type": "custom_tool_call"}
            return {**own, "call_id": call_id, **call["custom"]}
        own = {"id": f"fc_{uuid.uuid4().hex}", "type": "function_call", "status": "completed"}
        return {**own, "call_id": call_id, **call["function"]}

    def logprobs(self, tokens: Sequence[Scored], text: str) -> list[Any]:
        """Return the log probabilities of a text, where they are requested.

        Args:
            tokens: its tokens, among which may be the tokens of thoughts, marks and calls.
            text: the text.
        """
        return list(chat_logprobs(tokens_of(text, tokens))["content"]) if tokens else []

    def _items(self, result: Mapping[str, Any], status: ResponseStatus) -> Iterator[Any]:
        text, calls = result["generated_text"], result.get("tool_calls", ())
        reasoning = self.reasoning(result)
        if reasoning:
            is_last = not (text or calls)
            yield self.item("reasoning", reasoning, status if is_last else "completed")
        if text or not (calls or reasoning):
            message = self.item("message", text, "completed" if calls else status)
            tokens = scored_in(result["details"]) or []
            message["content"][0]["logprobs"] = self.logprobs(tokens, text)
            yield message
        yield from (self.call(call) for call in calls)

    def _response(self, status: ResponseStatus) -> Response:
        body = self.body
        reasoning = body.reasoning or {}
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": served_name(self.endpoint.model, body.model),
            "output": [],
            "usage": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            "store": self.stores,
            "text": {"format": (body.text or {}).get("format") or {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": [{**TOOL_DEFAULTS.get(tool["type"], {}), **tool} for tool in body.tools or ()],
            "top_logprobs": body.top_logprobs or 0,
            "truncation": body.truncation or "disabled",
        }


KEYS = KeyTable.of(
    ResponseBody,
    BOOKKEEPING,
    SCHEDULING,
    honoured("metadata", "store"),
    # Tools run at the client, which counts their calls; payloads are for vLLM's routers.
    ignored("max_tool_calls", "mm_payload", "return_mm_kwargs"),
    refused(
        background=False,
        prompt=[],
        context_management=[],
        moderation=[],
        include_stop_str_in_output=False,
        mm_processor_kwargs=[],
        media_io_kwargs=[],
        chat_template=[],
        vllm_xargs=[],
        kv_transfer_params=[],
        ec_transfer_params=[],
        watermarking=False,
        previous_input_messages=[],
        enable_response_messages=False,
    ),
    {"conversation": Key("refused", remedy=NOTHING_STORED)},
)
AS_NAMED_EVENTS = """\
With `stream: true` the answer comes as server-sent events, each with the name of its type. \
Responses are stored where `stored_responses` of the YAML says so, unless `store` is false."""
# Parts of the examples.
CONVERSATION = [{"role": "user", "content": "Once upon a time"}]
FEW = {"max_output_tokens": 8}
ANIMAL = {
    "type": "object",
    "properties": {"animal": {"enum": ["fox", "bear"]}},
    "required": ["animal"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "find_animal", "parameters": ANIMAL}


class Responses(Endpoint[ResponseBody]):
    """`responses`: an input, through the checkpoint's chat template."""

    route = Route(
        "v1/responses",
        name="respond",
        server="OpenAI",
        summary="Answer a text or a conversation, by the checkpoint's own chat template.",
        response=Response,
        error=OpenAIError,
        abilities=("continues_prompts",),
        body=ResponseBody,
        keys=KEYS,
        examples=lambda _: {
            "one": {"input": "Once upon a time", "instructions": "Tell a story.", **FEW},
            "conversation": {"input": CONVERSATION, "temperature": 0, **FEW},
            "stream": {"input": CONVERSATION, "stream": True, **FEW},
            "tools": {"input": CONVERSATION, "tools": [TOOL], **FEW},
            "schema": {
                "input": CONVERSATION,
                "text": {"format": {"type": "json_schema", "name": "story", "schema": ANIMAL}},
                **FEW,
            },
        },
        description=AS_NAMED_EVENTS,
        stream=SERVER_SENT_EVENTS,
        part=ResponseEvent,
    )
    inputs_key = "input"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._store = ResponseStore(model.settings.stored_responses)

    def read_body(self, content: Any) -> ResponseBody:
        given = content.get("input") if isinstance(content, dict) else None
        if isinstance(given, list):
            check_count(len(given), "input", MAX_MESSAGES)
        return super().read_body(content)

    def parsed_request(self, http_request: HttpRequest, body: ResponseBody) -> ParsedRequest:
        stores = bool(self._store.size) and body.store is not False
        response_id = f"{id_prefix(self.model.name)}{uuid.uuid4().hex[:24]}"
        inputs = [*self._earlier(body), *body.items]
        template = ResponseTemplate(self, body, response_id, int(time.time()), stores, inputs)
        stream = ResponseStream(http_request, template) if body.stream else None
        parameters = {**body.parameters, **adapter_parameters(self.model, body.model)}
        if body.truncation == "auto":
            parameters["truncate"] = longest_prompt(self.model, body.max_output_tokens or 1)
        request = Request(
            self._messages(body, inputs), parameters, stream=stream, use_remaining_context=True
        )
        return ParsedRequest(http_request, [request], template)

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        ((result,),) = results
        (request,) = parsed.requests
        template: ResponseTemplate = parsed.context
        if isinstance(request.stream, ResponseStream):
            events = request.stream.rest(result)
            self._keep(template, request.stream.response)
            return SERVER_SENT_EVENTS.response(events)
        response = template.complete(result)
        self._keep(template, response)
        return HttpResponse(encode_json(response))

    def stored(self, http_request: HttpRequest, path: str) -> Any:
        """Return what a request for a stored response gets: it, its input items, or its deletion.

        Args:
            path: the path after `responses/`: the id, and `/input_items`.

        Raises:
            NotFound: no such response is stored, or there is no such path.
            Unprocessable: the response is requested as a stream, or is to be cancelled.
        """
        response_id, _, of_response = path.partition("/")
        if of_response == "cancel":
            raise Unprocessable(
                "No response runs in the background here, so none can be cancelled."
            )
        if of_response not in ("", INPUT_ITEMS):
            raise NotFound(f"A response has no {shorten(of_response)} here; it has {INPUT_ITEMS}.")
        if not of_response and http_request.header(METHOD_OVERRIDE).upper() == "DELETE":
            self._store.delete(response_id)
            return {"id": response_id, "object": "response", "deleted": True}
        query = parse_body(RetrievalQuery, http_request.content if http_request.has_body else {})
        if query.stream:
            raise Unprocessable("stream cannot be done for a stored response; leave it out.")
        found = self._store.get(response_id)
        return _page(listed_items(found.inputs), query) if of_response else found.response

    def last_event(self, parsed: ParsedRequest, error: RequestError) -> bytes:
        stream: Any = parsed.requests[0].stream
        return bytes(stream.failure(error))

    def key_of(self, sentence: str, body: ResponseBody) -> str | None:
        if sentence.startswith("reasoning_effort"):
            return "reasoning"
        if not ABOUT_GRAMMAR.search(sentence):
            return None
        given = {
            "text": (body.text or {}).get("format"),
            "structured_outputs": body.structured_outputs,
            "tools": body.tools,
        }
        return next((name for name, value in given.items() if value), None)

    def _messages(
        self, body: ResponseBody, items: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the messages of the chat: the instructions, and the items of the conversation."""
        reads_images = self.model.task.wire.reads_media
        system = [] if body.instructions is None else [("system", body.instructions)]
        messages = [{"role": role, "content": content} for role, content in system]
        return with_one_system_message(
            [*messages, *chat_messages(items, reads_images=reads_images)]
        )

    def _earlier(self, body: ResponseBody) -> Sequence[Mapping[str, Any]]:
        if body.previous_response_id is None:
            return ()
        return self._store.conversation(body.previous_response_id)

    def _keep(self, template: ResponseTemplate, response: Response | None) -> None:
        if template.stores and response:
            self._store.put(StoredResponse(response, template.inputs))


def tokens_of(text: str, tokens: Sequence[Scored]) -> list[Scored]:
    """Return the tokens of a text among others: of thoughts before it, or of calls after it."""
    whole = "".join(token["text"] for token, _ in tokens)
    start = len(whole) - len(text) if whole.endswith(text) else whole.find(text)
    if start < 0:
        return list(tokens)
    found, at, stop = list[Scored](), 0, start + len(text)
    for each in tokens:
        end = at + len(each[0]["text"])
        # The first parts of a character have no text.
        if (start <= at <= stop) if at == end else (at < stop and end > start):
            found.append(each)
        at = end
    return found


def id_prefix(model: str) -> str:
    """Return the beginning of the ids of a model's responses, by which hosts find the model."""
    return f"resp_{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def _page(items: Sequence[Mapping[str, Any]], query: RetrievalQuery) -> dict[str, Any]:
    """Return a page of a list of items, as OpenAI has it."""
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    if query.after is not None:
        ids = [each["id"] for each in ordered]
        if query.after not in ids:
            raise BadRequest(f"after is {quote(query.after)}, and no item has this id.")
        ordered = ordered[ids.index(query.after) + 1 :]
    data = ordered[: query.limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(ordered) > len(data),
    }


def _usage(details: Mapping[str, Any]) -> ResponseUsage:
    read, written = details["input_length"], details["generated_tokens"]
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": details.get("reasoning_tokens", 0)},
        "total_tokens": read + written,
    }
