"""The endpoint `responses`: a text or a conversation to a text, whole or as events.

    {"input": "a text", "max_output_tokens": 20}
    -> {"object": "response", "output": [{"type": "message", "content": [{"text": "…"}]}], …}

Each request is complete in itself: nothing is stored, so there is no earlier response to go on
from.

https://platform.openai.com/docs/api-reference/responses and /responses-streaming
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    Field,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from ...config.messages import quote
from ...errors import BadRequest, RequestError, Unprocessable
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...http.streams import SERVER_SENT_EVENTS, HttpTextStream, event
from ...types.parameters import json_type
from ...types.request import MAX_MESSAGES, GeneratedToken, Request
from ..base import Key, KeyTable, ParsedRequest, Route, check_count, honoured, ignored, refused
from .bodies import BOOKKEEPING, SCHEDULING, Items, Sampling, StreamedBody
from .endpoint import Call, Endpoint, adapter_parameters, served_name
from .types import (
    OpenAIError,
    OutputMessage,
    OutputText,
    Response,
    ResponseEvent,
    ResponseStatus,
    ResponseUsage,
)

TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
IMAGE_PART = "input_image"
# The only message of a response, and the only part of it.
INDEXES = {"output_index": 0, "content_index": 0}
NOTHING_STORED = "nothing is stored, so send the whole conversation as input"


class ResponseBody(StreamedBody):
    """The body of `responses`."""

    input: str | Annotated[Items[dict[str, Any]], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None

    @field_validator("input", mode="wrap")
    @classmethod
    def _text_or_messages(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(value)
        except ValidationError:
            raise ValueError("is no input; send a text or a list of messages") from None

    def messages(self, *, reads_images: bool) -> list[dict[str, Any]]:
        """Return the messages of the chat: the instructions, and the input.

        Raises:
            Unprocessable: the input has something else than messages of texts.
        """
        system = [] if self.instructions is None else [_message("system", self.instructions)]
        if isinstance(self.input, str):
            return [*system, _message("user", self.input)]
        items = enumerate(self.input)
        return [*system, *(_read_item(item, f"input[{at}]", reads_images) for at, item in items)]

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the text-generation task, as for a chat."""
        settings = self.model_dump(include={"temperature", "top_p"})
        return Sampling(max_tokens=self.max_output_tokens, **settings).parameters


class ResponseStream(HttpTextStream):
    """Sends the text of a response as events, with their names and numbers."""

    def __init__(self, http_request: HttpRequest, template: ResponseTemplate) -> None:
        super().__init__(http_request)
        self._template, self._count = template, 0

    def part(self, text: str, tokens: Sequence[GeneratedToken], *, first: bool) -> bytes:
        begin = self._begin() if first else b""
        delta = {"delta": text, "logprobs": []}
        return begin + self._event("response.output_text.delta", **self._indexes, **delta)

    def rest(self, text: Mapping[str, Any]) -> bytes:
        """Return the events of the part of a result that was not sent, and of the end."""
        new, first = self.not_emitted(text["generated_text"]), not self.emitted
        part = self.part(new, (), first=first) if new or first else b""
        response = self._template.complete(text)
        (message,) = response["output"]
        (content,) = message["content"]
        done = {"text": content["text"], "logprobs": []}
        return b"".join(
            [
                part,
                self._event("response.output_text.done", **self._indexes, **done),
                self._event("response.content_part.done", **self._indexes, part=content),
                self._event("response.output_item.done", output_index=0, item=message),
                self._event(f"response.{response['status']}", response=response),
            ]
        )

    def failure(self, error: RequestError) -> bytes:
        """Return the last event of a response that an error ends."""
        return self._event("response.failed", response=self._template.failed(error))

    def _begin(self) -> bytes:
        response, message = self._template.begun(), self._template.message("", "in_progress")
        (content,) = message["content"]
        return b"".join(
            [
                self._event("response.created", response=response),
                self._event("response.in_progress", response=response),
                self._event(
                    "response.output_item.added", output_index=0, item={**message, "content": []}
                ),
                self._event("response.content_part.added", **self._indexes, part=content),
            ]
        )

    @property
    def _indexes(self) -> dict[str, Any]:
        return {"item_id": self._template.message_id, **INDEXES}

    def _event(self, name: str, **facts: Any) -> bytes:
        """Return an event, a `ResponseEvent` of :mod:`hf_serve.handlers.protocols.openai.types`."""
        number, self._count = self._count, self._count + 1
        return event({"type": name, "sequence_number": number, **facts}, name)


@dataclass(frozen=True)
class ResponseTemplate(Call[ResponseBody]):
    """What all forms of one response have.

    Attributes:
        created_at: seconds since 1970.
    """

    response_id: str
    message_id: str
    created_at: int

    def begun(self) -> Response:
        """Return the response before its first token."""
        return self._response("in_progress")

    def complete(self, text: Mapping[str, Any]) -> Response:
        """Return the response with a result of the task."""
        is_cut = text["details"]["finish_reason"] == "length"
        response = self._response("incomplete" if is_cut else "completed")
        if is_cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        response["output"] = [self.message(text["generated_text"], response["status"])]
        response["usage"] = _usage(text["details"])
        return response

    def failed(self, error: RequestError) -> Response:
        """Return the response that an error ends."""
        response = self._response("failed")
        response["error"] = {"code": "server_error", "message": str(error)}
        return response

    def message(self, text: str, status: ResponseStatus) -> OutputMessage:
        """Return the assistant's message."""
        content: OutputText = {
            "type": "output_text",
            "text": text,
            "annotations": [],
            "logprobs": [],
        }
        return {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [content],
        }

    def _response(self, status: ResponseStatus) -> Response:
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": served_name(self.endpoint.model, self.body.model),
            "output": [],
            "usage": None,
            "instructions": self.body.instructions,
            "max_output_tokens": self.body.max_output_tokens,
            "temperature": self.body.temperature,
            "top_p": self.body.top_p,
            "metadata": self.body.metadata or {},
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "truncation": "disabled",
        }


KEYS = KeyTable.of(
    ResponseBody,
    BOOKKEEPING,
    SCHEDULING,
    honoured("metadata"),
    # There are no tools to call.
    ignored("parallel_tool_calls", "max_tool_calls"),
    refused(
        tool_choice=["auto", "none"],
        background=False,
        include=[],
        prompt=[],
        reasoning=[],
        text=[
            {"format": {"type": "text"}},
            {"format": {"type": "text"}, "verbosity": "medium"},
        ],
        tools=[],
        top_logprobs=0,
        truncation="disabled",
        context_management=[],
        moderation=[],
        include_stop_str_in_output=False,
        mm_processor_kwargs=[],
        media_io_kwargs=[],
        chat_template=[],
        chat_template_kwargs=[],
        structured_outputs=[],
        logit_bias=[],
        frequency_penalty=0,
        presence_penalty=0,
        repetition_penalty=1,
        top_k=[-1, 0],
        min_p=0,
        seed=[],
        stop=[],
        ignore_eos=False,
        skip_special_tokens=True,
        vllm_xargs=[],
        kv_transfer_params=[],
        previous_input_messages=[],
        enable_response_messages=False,
    ),
    {
        "conversation": Key("refused", remedy=NOTHING_STORED),
        "previous_response_id": Key("refused", remedy=NOTHING_STORED),
    },
)
AS_NAMED_EVENTS = """\
With `stream: true` the answer comes as server-sent events, each with the name of its type. \
Nothing is stored, whatever `store` says."""
# Parts of the examples.
CONVERSATION = [{"role": "user", "content": "Once upon a time"}]
FEW = {"max_output_tokens": 8}


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
        },
        description=AS_NAMED_EVENTS,
        stream=SERVER_SENT_EVENTS,
        part=ResponseEvent,
    )
    inputs_key = "input"

    def read_body(self, content: Any) -> ResponseBody:
        given = content.get("input") if isinstance(content, dict) else None
        if isinstance(given, list):
            check_count(len(given), "input", MAX_MESSAGES)
        return super().read_body(content)

    def parsed_request(self, http_request: HttpRequest, body: ResponseBody) -> ParsedRequest:
        template = ResponseTemplate(
            self, body, f"resp_{uuid.uuid4().hex}", f"msg_{uuid.uuid4().hex}", int(time.time())
        )
        stream = ResponseStream(http_request, template) if body.stream else None
        parameters = {**body.parameters, **adapter_parameters(self.model, body.model)}
        messages = body.messages(reads_images=self.model.task.wire.reads_media)
        request = Request(messages, parameters, stream=stream, use_remaining_context=True)
        return ParsedRequest(http_request, [request], template)

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        ((text,),) = results
        (request,) = parsed.requests
        if isinstance(request.stream, ResponseStream):
            return SERVER_SENT_EVENTS.response(request.stream.rest(text))
        return HttpResponse(encode_json(parsed.context.complete(text)))

    def last_event(self, parsed: ParsedRequest, error: RequestError) -> bytes:
        stream: Any = parsed.requests[0].stream
        return bytes(stream.failure(error))


def _read_item(item: Mapping[str, Any], name: str, reads_images: bool) -> dict[str, Any]:
    """Return an item of the input as a message of a chat."""
    kind = item.get("type", "message")
    if kind != "message":
        raise Unprocessable(
            f"{name} has the type {quote(kind)}, and this server takes messages only."
        )
    content = item.get("content")
    if isinstance(content, list):
        content = [_read_part(part, f"{name}.content", reads_images) for part in content]
    return _message(item.get("role"), content)


def _read_part(part: Any, name: str, reads_images: bool) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise BadRequest(f"{name} must be a list of objects, and has {json_type(part)}.")
    kind = part.get("type")
    if reads_images and kind == IMAGE_PART:
        if part.get("image_url") is None:
            raise BadRequest(
                f"{name} has an image without image_url; files have no other ids here."
            )
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        read = "texts and images" if reads_images else "texts"
        raise Unprocessable(
            f"{name} has a part of the type {quote(kind)}, and this model reads {read} only."
        )
    key = TEXT_PARTS[kind]
    return {"type": key, key: part.get(key)}


def _message(role: Any, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def _usage(details: Mapping[str, Any]) -> ResponseUsage:
    read, written = details["input_length"], details["generated_tokens"]
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
