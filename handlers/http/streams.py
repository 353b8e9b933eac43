"""Responses in parts: each part is sent as soon as it is known.

https://html.spec.whatwg.org/multipage/server-sent-events.html and https://github.com/ndjson/ndjson-spec
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..types.request import GeneratedToken, Request, StepStream, TextStream
from .request import HttpRequest
from .response import HttpResponse, encode_json


@dataclass(frozen=True)
class Stream:
    """A format of responses in parts.

    Attributes:
        content_type: the content type of the response.
        encode: returns the bytes of a part.
    """

    content_type: str
    encode: Callable[[Any], bytes]

    def response(self, parts: bytes) -> HttpResponse:
        """Return a response with encoded parts."""
        return HttpResponse(parts, content_type=self.content_type)


def event(value: Any, name: str = "") -> bytes:
    """Return a server-sent event with JSON, and with a name where it has one."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode_json(value) + b"\n\n"


def json_line(value: Any) -> bytes:
    """Return a line of JSON."""
    return encode_json(value) + b"\n"


SERVER_SENT_EVENTS = Stream("text/event-stream", event)


def streaming_started(requests: Sequence[Request]) -> bool:
    """Return whether a part of the response to some requests was sent."""
    streams = [stream for each in requests for stream in (each.stream, each.progress) if stream]
    return any(stream.has_begun for stream in streams)


class HttpTextStream(TextStream, ABC):
    """Sends new text as parts of a response, where the HTTP request can be answered in parts.

    Attributes:
        stream: the format of the response.
    """

    stream: ClassVar[Stream] = SERVER_SENT_EVENTS

    def __init__(self, http_request: HttpRequest) -> None:
        super().__init__(self._send_new)
        self._http_request = http_request

    @abstractmethod
    def part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        """Return the encoded parts of new text, and of its tokens where they are recorded."""

    @property
    def can_send(self) -> bool:
        """Whether the request can be answered in parts."""
        return self._http_request.send is not None

    def emit(self, text: str, tokens: Sequence[GeneratedToken] = ()) -> None:
        if self.can_send:
            super().emit(text, tokens)

    def reasoning_part(self, text: str, tokens: Sequence[GeneratedToken]) -> bytes:
        """Return the encoded parts of new thoughts; empty where they are left for the response."""
        return b""

    def emit_reasoning(self, reasoning: str, tokens: Sequence[GeneratedToken] = ()) -> bool:
        new = reasoning[len(self.emitted_reasoning) :]
        if not (new and self.can_send):
            return False
        part = self.reasoning_part(new, tokens)
        if part:
            self.emitted_reasoning = reasoning
            self.emitted_tokens += len(tokens)
            self.send(part)
        return bool(part)

    def _send_new(self, new: str, tokens: Sequence[GeneratedToken]) -> None:
        self.send(self.part(new, tokens))

    def send(self, parts: bytes) -> None:
        """Send encoded parts if there are any, where the request can be answered in parts."""
        if parts and self._http_request.send is not None:
            self._http_request.send(_response(self._http_request, self.stream, parts))


class HttpStepStream(StepStream):
    """Sends the steps of images as server-sent events, where a response in parts is possible.

    Args:
        part: returns the event of a step, from its number and the number of steps.
    """

    def __init__(self, http_request: HttpRequest, part: Callable[[int, int], bytes]) -> None:
        super().__init__(self._send_step)
        self._http_request, self._part = http_request, part

    def emit(self, step: int, steps: int) -> None:
        if self._http_request.send is not None:
            super().emit(step, steps)

    def _send_step(self, step: int, steps: int) -> None:
        if self._http_request.send is not None:
            part = self._part(step, steps)
            self._http_request.send(_response(self._http_request, SERVER_SENT_EVENTS, part))


def _response(http_request: HttpRequest, stream: Stream, part: bytes) -> HttpResponse:
    headers = http_request.response_headers
    return HttpResponse(part, content_type=stream.content_type, headers=headers)
