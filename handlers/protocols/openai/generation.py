"""The endpoints `chat/completions` and `completions`: generated texts, whole or as events."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from handlers.errors import RequestError
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.http.server_sent_events import EVENTS, EventStream, event
from handlers.protocols.base import (
    Exchange,
    check_continues_prompts,
    check_count,
    check_not_explained,
)
from handlers.protocols.openai.adapters import adapter_parameters, fingerprint, served_name
from handlers.protocols.openai.bodies import ChatBody, CompletionBody, Sampling
from handlers.protocols.openai.errors import error_body
from handlers.protocols.openai.keys import TABLES
from handlers.protocols.openai.logprobs import (
    Scored,
    chat_logprobs,
    completion_logprobs,
    scored,
    scored_in,
)
from handlers.protocols.openai.tools import call_deltas, tool_calls
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.request import MAX_MESSAGES, GeneratedToken, Request

# The value of `truncate_prompt_tokens` for as many tokens as the model takes.
WHOLE = -1
DONE = b"data: [DONE]\n\n"
FINISH_REASONS = {"length": "length", "eos_token": "stop", "stop_sequence": "stop"}

Delta = Callable[[str, bool], Mapping[str, Any]]
Logprobs = Callable[[Sequence[Scored], int], dict[str, Any]]


class ChoiceStream(EventStream):
    """Sends the texts of the choices of one prompt as chunks.

    Args:
        http_request: the request.
        head: the keys that every chunk of the response begins with.
        index: the number of its choice, the first one.
        delta: returns the part of a chunk with new text, given whether it is the first.
        logprobs: returns the log probabilities of new tokens, given where they begin.
        prefix: text before the generated one.
        others: the streams of the other choices.
        repeats: whether the other choices have the text of the first, which is generated alone.
    """

    sends_sequences = True

    def __init__(
        self,
        http_request: HttpRequest,
        head: Mapping[str, Any],
        index: int,
        delta: Delta,
        logprobs: Logprobs,
        prefix: str = "",
        others: Sequence[ChoiceStream] = (),
        *,
        repeats: bool = False,
    ) -> None:
        super().__init__(http_request)
        self._head, self._index, self._prefix = head, index, prefix
        self._others, self._repeats = others, repeats
        self._delta, self._logprobs = delta, logprobs
        self._offset, self._has_ended = 0, False

    def emit(self, text: str, tokens: Sequence[GeneratedToken] = ()) -> None:
        super().emit(self._prefix + text, tokens)
        for other in self._others if self._repeats else ():
            other.emit(text, tokens)

    @property
    def has_begun(self) -> bool:
        others = any(other.has_begun for other in self._others)
        return super().has_begun or self._has_ended or others

    def of_sequence(self, number: int) -> ChoiceStream:
        return self._others[number - 1] if number else self

    def part(self, text: str, tokens: Sequence[GeneratedToken], *, first: bool) -> bytes:
        return self._chunk(text, scored(tokens), first=first)

    def end(self, result: Mapping[str, Any]) -> None:
        if self.can_send:
            self.send(self.rest(result))
            for other in self._others if self._repeats else ():
                other.end(result)

    def rest(self, result: Mapping[str, Any]) -> bytes:
        """Return the events of what was not sent of a complete text, and of its end."""
        if self._has_ended:
            return b""
        self._has_ended = True
        text, tokens = result["generated_text"], scored_in(result["details"]) or []
        new, first = self.not_emitted(text), not self.emitted
        left = tokens[self.emitted_tokens :]
        part = self._chunk(new, left, first=first) if new or left or first else b""
        deltas = call_deltas(tool_calls(result))
        more = b"".join(self._event({"delta": delta, "logprobs": None}) for delta in deltas)
        return part + more + self._chunk("", (), first=False, reason=_finish_reason(result))

    def _event(self, part: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": self._index, **part, "finish_reason": reason}
        return event({**self._head, "choices": [choice]})

    def _chunk(
        self,
        text: str,
        tokens: Sequence[Scored],
        *,
        first: bool,
        reason: str | None = None,
    ) -> bytes:
        """Return the event of new text, or of the end with its reason."""
        part = dict(self._delta(text, first))
        if tokens:
            part["logprobs"] = self._logprobs(tokens, self._offset)
        self._offset += len(text)
        return self._event(part, reason)


@dataclass(frozen=True)
class Completion:
    """What an endpoint needs to write a response.

    Attributes:
        endpoint: the endpoint.
        body: the checked body.
        head: the keys that the response, or each of its chunks, begins with.
    """

    endpoint: GenerationEndpoint
    body: Sampling
    head: Mapping[str, Any]


class GenerationEndpoint(ABC):
    """An endpoint that generates texts.

    Attributes:
        path: the end of its URL.
        inputs_key: the key of the inputs in its bodies.
        kind: the `object` of its responses; `chunk_kind` is that of the chunks of a stream.
        id_prefix: the prefix of the ids of its responses.
    """

    path: ClassVar[str]
    inputs_key: ClassVar[str]
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]
    id_prefix: ClassVar[str]

    def __init__(self, model: ModelInfo) -> None:
        self.model = model

    @abstractmethod
    def parse_body(self, content: Any) -> Sampling:
        """Check a body.

        Raises:
            RequestError: it is wrong, or has a setting that is not supported.
        """

    @abstractmethod
    def inputs(self, body: Any) -> list[Any]:
        """Return the inputs of each request."""

    @abstractmethod
    def choice(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return a complete choice without its index and its finish reason."""

    @abstractmethod
    def logprobs(self, tokens: Sequence[Scored], offset: int) -> dict[str, Any]:
        """Return the log probabilities of tokens, whose text begins after some characters."""

    @abstractmethod
    def delta(self, text: str, first: bool) -> dict[str, Any]:
        """Return a chunk's choice without its index and its finish reason."""

    def parse(self, http_request: HttpRequest) -> Exchange:
        """Parse a request.

        Raises:
            RequestError: it cannot be understood, or this model cannot do it.
        """
        check_continues_prompts(self.model)
        check_not_explained(http_request, self.path)
        http_request = TABLES[self.path].check(http_request)
        body = self.parse_body(http_request.content)
        parameters = {**body.parameters, **adapter_parameters(self.model, body.model)}
        if parameters.get("truncate") == WHOLE:
            parameters["truncate"] = self._longest_prompt(body.max_new_tokens or 1)
        completion = Completion(self, body, self._head(body))
        requests = [
            Request(each, parameters, fills_limit=True, stream=stream)
            for each, stream in self._with_streams(
                http_request, completion, repeats=parameters["num_return_sequences"] == 1
            )
        ]
        return Exchange(http_request, requests, completion)

    def write(self, exchange: Exchange, results: Sequence[Any]) -> HttpResponse:
        """Return the response, from the result of each request."""
        completion: Completion = exchange.context
        # Without sampling all choices of a prompt are equal: one is generated and repeated.
        choices = [texts * (completion.body.choices // len(texts)) for texts in results]
        if completion.body.stream:
            events = _events(completion, exchange.requests, choices)
            return HttpResponse(events, content_type=EVENTS)
        texts = [text for of_prompt in choices for text in of_prompt]
        listed = [
            {
                "index": number,
                **self.choice(text),
                **self._logprobs(text["details"]),
                "finish_reason": _finish_reason(text),
            }
            for number, text in enumerate(texts)
        ]
        usage = _usage(choices)
        return HttpResponse(encode_json({**completion.head, "choices": listed, "usage": usage}))

    def last_event(self, exchange: Exchange, error: RequestError) -> bytes:
        """Return the events of an error that ends a stream."""
        return event(error_body(error)) + DONE

    def _with_streams(
        self, http_request: HttpRequest, completion: Completion, *, repeats: bool
    ) -> Iterator[tuple[Any, ChoiceStream | None]]:
        """Yield each input, and the stream of its texts if the body asks for streams."""
        body = completion.body
        new = partial(ChoiceStream, http_request, completion.head)
        echoes = bool(http_request.content.get("echo"))
        for number, each in enumerate(self.inputs(body)):
            prefix = each if echoes and isinstance(each, str) else ""
            first, *following = range(number * body.choices, (number + 1) * body.choices)
            others = [new(index, self.delta, self.logprobs, prefix) for index in following]
            stream = new(first, self.delta, self.logprobs, prefix, others, repeats=repeats)
            yield each, stream if body.stream else None

    def _longest_prompt(self, new_tokens: int) -> int:
        """Return how many tokens of a prompt leave room for new ones; 0 where there is no limit."""
        limits = self.model.limits
        room = limits.max_total_tokens and max(1, limits.max_total_tokens - new_tokens)
        return min(filter(None, (limits.max_length, room)), default=0)

    def _logprobs(self, details: Mapping[str, Any]) -> dict[str, Any]:
        tokens = scored_in(details)
        return {} if tokens is None else {"logprobs": self.logprobs(tokens, 0)}

    def _head(self, body: Sampling) -> dict[str, Any]:
        return {
            "id": f"{self.id_prefix}-{uuid.uuid4().hex}",
            "object": self.chunk_kind if body.stream else self.kind,
            "created": int(time.time()),
            "model": served_name(self.model, body.model),
            "system_fingerprint": fingerprint(self.model),
        }


class Chat(GenerationEndpoint):
    """`chat/completions`: the messages of a chat, through the checkpoint's chat template."""

    path = "chat/completions"
    inputs_key = "messages"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    id_prefix = "chatcmpl"

    def parse_body(self, content: Any) -> ChatBody:
        messages = _list_in(content, "messages")
        if messages:
            check_count(len(messages), "messages", MAX_MESSAGES)
        return ChatBody.parse(content)

    def inputs(self, body: ChatBody) -> list[Any]:
        return [body.messages]

    def choice(self, result: Mapping[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": result["generated_text"]}
        if calls := tool_calls(result):
            message |= {"content": message["content"].strip() or None, "tool_calls": calls}
        return {"message": message, "logprobs": None}

    def logprobs(self, tokens: Sequence[Scored], offset: int) -> dict[str, Any]:
        return chat_logprobs(tokens)

    def delta(self, text: str, first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if first else {}
        return {"delta": {**role, "content": text} if text or first else {}, "logprobs": None}


class Completions(GenerationEndpoint):
    """`completions`: one prompt or several."""

    path = "completions"
    inputs_key = "prompt"
    kind = "text_completion"
    chunk_kind = "text_completion"
    id_prefix = "cmpl"

    def parse_body(self, content: Any) -> CompletionBody:
        prompts = _list_in(content, "prompt")
        if prompts is not None and not isinstance(next(iter(prompts), None), int):
            check_count(len(prompts), "prompt", self.model.limits.max_rows)
        return CompletionBody.parse(content)

    def inputs(self, body: CompletionBody) -> list[Any]:
        return list(body.prompts)

    def choice(self, result: Mapping[str, Any]) -> dict[str, Any]:
        return self.delta(result["generated_text"], first=True)

    def logprobs(self, tokens: Sequence[Scored], offset: int) -> dict[str, Any]:
        return completion_logprobs(tokens, offset)

    def delta(self, text: str, first: bool) -> dict[str, Any]:
        return {"text": text, "logprobs": None}


def _list_in(content: Any, name: str) -> list[Any] | None:
    """Return a list of a body that is not checked yet; None where it has none."""
    value = content.get(name) if isinstance(content, dict) else None
    return value if isinstance(value, list) else None


def _events(completion: Completion, requests: Sequence[Request], choices: Sequence[Any]) -> bytes:
    """Return the events that end a stream."""
    parts: list[bytes] = []
    for request, texts in zip(requests, choices, strict=True):
        stream: Any = request.stream
        parts += [stream.of_sequence(number).rest(text) for number, text in enumerate(texts)]
    options = completion.body.stream_options
    if options and options.include_usage:
        parts.append(event({**completion.head, "choices": [], "usage": _usage(choices)}))
    return b"".join(parts) + DONE


def _finish_reason(text: Mapping[str, Any]) -> str:
    reason = FINISH_REASONS[text["details"]["finish_reason"]]
    return "tool_calls" if reason == "stop" and text.get("tool_calls") else reason


def _usage(choices: Sequence[Any]) -> dict[str, int]:
    """Return the numbers of tokens; a prompt counts once, however many choices it has."""
    prompt = sum(texts[0]["details"]["input_length"] for texts in choices)
    completion = sum(text["details"]["generated_tokens"] for texts in choices for text in texts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
