"""Hugging Face: `{"inputs": …, "parameters": {…}}`; a list of inputs gets a list of results.

With `"stream": true` a generated text comes as the events of text-generation-inference, each with a
token:

    data: {"index": 1, "token": {"id": 7, "text": " a", "logprob": -0.5, "special": false},
           "generated_text": null, "details": null}

The tokens of beams, and of texts with `prompt_lookup_num_tokens`, are not recorded. There an event
has new text in place of a token, whose id and log probability are null.

The last event has the whole result and, where requested, its details without tokens.

A stream of generated images has an event for each step, and a last one with the whole result:

    data: {"step": 3, "steps": 20}

Where the Accept header prefers the type of a file, such as `image/png`, the response is that file.
So it is for clients of the hub that read a file of audio whatever they accept.

For embeddings, parameters may be top-level keys, as the hub's client writes them:

    {"inputs": "a text", "normalize": true}

For questions about images, the hub's client writes the image twice:

    {"inputs": "<base64>", "image": "<base64>", "question": "What is it?"}

https://huggingface.co/docs/text-generation-inference/conceptual/streaming
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from types import MappingProxyType
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from ..errors import BadRequest, RequestError, Unprocessable
from ..generation.chat import Message
from ..http.request import HttpRequest
from ..http.response import JSON, HttpResponse, encode_json
from ..http.streams import (
    SERVER_SENT_EVENTS,
    HttpStepStream,
    HttpTextStream,
    event,
    streaming_started,
)
from ..types.model_info import Columns, ModelInfo
from ..types.request import GeneratedToken, Request, TextToken
from .base import BaseProtocol, ParsedRequest
from .items import (
    check_keys,
    from_base64,
    has_other_input_keys,
    read_parameters,
    read_stream,
    read_target,
)
from .result_formats import format_results, preferred_file, preferred_type

# The details that a stream has in its events.
TOKEN_DETAILS = {"prefill", "tokens", "top_tokens", "prefill_top_tokens"}
# The parameters for which a result has details.
DETAIL_PARAMETERS = ("details", "logprobs", "top_n_tokens", "return_token_ids")
KEYS = ["inputs", "parameters", "options", "stream", "target"]
# The services whose parameters may be top-level keys.
EMBEDDINGS = ("embed", "embed_all")
# The header in which the hub's own clients look for an error message.
MESSAGE = "X-Error-Message"


class Token(TypedDict):
    """A token, or new text in place of one."""

    id: int | None
    text: str
    logprob: float | None
    special: bool
    bytes: NotRequired[list[int]]
    rank: NotRequired[int]


class ShownToken(TypedDict):
    """A token, and the most likely ones in its place where they are requested."""

    token: Token
    top_tokens: NotRequired[list[TextToken]]


class StreamDetails(TypedDict):
    """Why a text ended, and what it took."""

    finish_reason: Literal["length", "eos_token", "stop_sequence"]
    generated_tokens: int
    input_length: int
    seed: int | None
    stop_sequence: NotRequired[str]


class TokenEvent(ShownToken):
    """One event of a generated text; the last has the whole text, and details if requested."""

    index: int
    generated_text: str | list[Message] | None
    details: StreamDetails | None


class StepEvent(TypedDict):
    """One event of a stream of images: a step."""

    step: int
    steps: int


class TokenEventStream(HttpTextStream):
    """Sends the text of one request as text-generation-inference's events.

    Args:
        has_details: whether the last event has the details of the result.
    """

    def __init__(
        self, http_request: HttpRequest, text_key: str, *, has_details: bool = True
    ) -> None:
        super().__init__(http_request)
        self._text_key, self._has_details = text_key, has_details
        self._count = 0

    def part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        shown = [_with_top(token.as_json(), token.top_as_json()) for token in tokens]
        return b"".join(map(self._event, shown or [_text_only(text)]))

    def last(self, new_text: str, result: Mapping[str, Any]) -> bytes:
        """Return the events that are left.

        Args:
            new_text: the whole generated text, without the prompt.
            result: the task's result, whose text may begin with the prompt.
        """
        details = result.get("details", {})
        top = details.get("top_tokens", repeat(()))
        shown = [_with_top(*each) for each in zip(details.get("tokens", ()), top, strict=False)]
        shown = shown[self.emitted_tokens :]
        *others, last = shown or [_text_only(self.not_emitted(new_text))]
        shown_details = details if self._has_details else {}
        facts: Any = {
            name: fact for name, fact in shown_details.items() if name not in TOKEN_DETAILS
        }
        first_events = b"".join(map(self._event, others))
        return first_events + self._event(last, result[self._text_key], facts or None)

    def _event(
        self,
        token: ShownToken,
        generated_text: str | list[Message] | None = None,
        details: StreamDetails | None = None,
    ) -> bytes:
        self._count += 1
        value: TokenEvent = {
            "index": self._count,
            **token,
            "generated_text": generated_text,
            "details": details,
        }
        return event(value)


class Protocol(BaseProtocol):
    """Bodies of the Hugging Face inference toolkit; `options` are for its hub and ignored.

    `target` is for explanations only.
    """

    body_keys: Mapping[str, type] | None = MappingProxyType(
        {"inputs": object, "parameters": object}
    )

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        # The parameters that may be top-level keys.
        self._top_level = model.parameters if model.task.service in EMBEDDINGS else {}
        self._known = {*KEYS, *self._top_level}

    def recognises(self, http_request: HttpRequest) -> bool:
        content = http_request.content
        if not isinstance(content, dict):
            return False
        return "inputs" in content or (
            "parameters" in content
            and not has_other_input_keys(content, self.model.task.wire.input_columns)
        )

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        content = http_request.content
        columns = self._columns_of(content) if self.model.task.wire.reads_media else ()
        if not content.keys() <= self._known:
            check_keys(content, [*KEYS, *self._top_level, *columns], "The body")
        if "inputs" not in content:
            raise BadRequest("The body has no inputs; send them under that key.")
        parameters = _items(content, self._top_level) if self._top_level else {}
        if "parameters" in content:
            parameters |= read_parameters(content)
        if "target" in content:
            parameters |= read_target(content, explains=http_request.explains)
        inputs = _items(content, columns) if columns else content["inputs"]
        if isinstance(inputs, dict):
            inputs = from_base64(inputs, self.model.task.wire.input_columns)
        requests = self.requests(inputs, parameters)
        if "stream" not in content or not read_stream(content):
            return ParsedRequest(http_request, requests)
        self._check_stream(http_request, requests[0])
        if self.model.task.generation.images:
            progress = HttpStepStream(http_request, _step_event)
            return ParsedRequest(http_request, [replace(requests[0], progress=progress)])
        asked = any(self._parameter(name, requests[0]) for name in DETAIL_PARAMETERS)
        return ParsedRequest(
            http_request, [self.streamed(http_request, requests[0], has_details=asked)]
        )

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        request, outcome = parsed.requests[0], outcomes[0]
        if not (isinstance(request.stream, TokenEventStream) or request.progress):
            return super().write(parsed, outcomes)
        if isinstance(outcome, RequestError):
            if not streaming_started([request]):
                return self.error_response(parsed.http_request, outcome)
            return SERVER_SENT_EVENTS.response(event(outcome.hub_body()))
        if not isinstance(request.stream, TokenEventStream):
            return SERVER_SENT_EVENTS.response(event({"result": outcome}))
        new_text = self._new_text(outcome[0][self.model.task.wire.result_columns[0]], request)
        return SERVER_SENT_EVENTS.response(request.stream.last(new_text, outcome[0]))

    def response(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        if self.model.task.wire.result_files and (kind := self._file_type(parsed)):
            return self._file(parsed, results, kind)
        if parsed.http_request.header("accept"):
            content_type = preferred_type(parsed.http_request, default=JSON)
            if content_type != JSON:
                columns = (
                    () if parsed.http_request.explains else self.model.task.wire.result_columns
                )
                return format_results(results, content_type, columns)
        return HttpResponse(encode_json(self.response_body(parsed, results)))

    def _file_type(self, parsed: ParsedRequest) -> str:
        """Return the type of the file that is the response; empty for one of another kind."""
        files, request = self.model.task.wire.result_files, parsed.http_request
        if files is None or parsed.http_request.explains or not request.takes_bytes:
            return ""
        if kind := preferred_file(request, files.content_types):
            return kind
        if preferred_type(request, default="") or parsed.requests[0].is_batch_item:
            return ""
        agent = request.header("user-agent")
        return files.clients_type if files.clients and files.clients.search(agent) else ""

    def _file(self, parsed: ParsedRequest, results: Sequence[Any], kind: str) -> HttpResponse:
        items = [
            item
            for result in results
            for item in (result if isinstance(result, list) else [result])
        ]
        if self.model.task.wire.result_files is None or len(items) != 1:
            error = Unprocessable(
                f"A response of type {kind} is one file, and the result has {len(items)}; ask for"
                " one, or accept application/json."
            )
            return self.error_response(parsed.http_request, error)
        return HttpResponse(
            self.model.task.wire.result_files.convert(items[0], kind), content_type=kind
        )

    def response_body(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        """Return a list, or the one result; clients of the hub get it as the hub writes it."""
        request, hub_result = parsed.requests[0], self.model.task.wire.hub_result
        if request.is_batch_item:
            return list(results)
        if hub_result and isinstance(request.inputs, str) and not parsed.http_request.explains:
            agent = parsed.http_request.header("user-agent")
            if hub_result.clients.search(agent):
                return hub_result.convert(results[0])
        return results[0]

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        """Return the usual response, with its message in a header as well."""
        response = super().error_response(http_request, error)
        return replace(response, headers={**response.headers, MESSAGE: str(error)})

    def streamed(
        self, http_request: HttpRequest, request: Request, *, has_details: bool = True
    ) -> Request:
        """Return a request whose text is streamed, with an event for each token if possible.

        Raises:
            Unprocessable: it asks for the tokens of the prompt, which no event has.
        """
        if request.parameters.get("decoder_input_details"):
            raise Unprocessable(
                "decoder_input_details is not supported in a stream; leave one of them out."
            )
        stream = TokenEventStream(
            http_request, self.model.task.wire.result_columns[0], has_details=has_details
        )
        parameters = {"logprobs": self._records_tokens(request), **request.parameters}
        return replace(request, parameters=parameters, stream=stream)

    def _records_tokens(self, request: Request) -> bool:
        """Return whether the tokens of a request can be recorded, with their probabilities."""
        beams, lookup = (
            self._parameter(name, request) for name in ("num_beams", "prompt_lookup_num_tokens")
        )
        return beams in (None, 1) and not lookup

    def _columns_of(self, content: Mapping[str, Any]) -> Columns:
        """Return the columns of a file and a text that are top-level keys; usually none."""
        several = (names for names in self.model.task.wire.input_columns if len(names) > 1)
        found = (names for names in several if content.keys() >= set(names))
        return max(found, key=len, default=())

    def _check_stream(self, http_request: HttpRequest, request: Request) -> None:
        generation = self.model.task.generation
        if http_request.explains or not (generation.texts or generation.images):
            raise Unprocessable("Only generated texts and images are streamed; leave stream out.")
        if generation.images and request.is_batch_item:
            raise Unprocessable("A stream has the images of one prompt; send one.")
        sequences = self._parameter("num_return_sequences", request)
        if request.is_batch_item or sequences not in (None, 1):
            raise Unprocessable("A stream has one text; send one prompt and request one sequence.")

    def _parameter(self, name: str, request: Request) -> Any:
        """Return a parameter of a request, or the default of its model."""
        default = self.model.parameters.get(name, {}).get("default")
        return request.parameters.get(name, default)

    def _new_text(self, generated: Any, request: Request) -> str:
        """Return the part of a result's text after the prompt."""
        if isinstance(generated, list):
            return str(generated[-1]["content"])
        after_prompt = self.model.task.generation.continues_prompts and isinstance(
            request.inputs, str
        )
        whole = after_prompt and self._parameter("return_full_text", request)
        return str(generated[len(request.inputs) :] if whole else generated)


def _items(body: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the items of a body with these names that it has."""
    return {name: body[name] for name in names if name in body}


def _with_top(token: TextToken, top: Sequence[TextToken]) -> ShownToken:
    """Return the keys of an event with a token, and with the most likely ones in its place."""
    shown: Token = {**token}
    return {"token": shown, "top_tokens": list(top)} if top else {"token": shown}


def _text_only(text: str) -> ShownToken:
    """Return the keys of an event with text in place of a token."""
    return {"token": {"id": None, "text": text, "logprob": None, "special": False}}


def _step_event(step: int, steps: int) -> bytes:
    value: StepEvent = {"step": step, "steps": steps}
    return event(value)
