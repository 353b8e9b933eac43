"""Server-sent events: a response in parts, each sent as soon as it is known.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.schemas.request import GeneratedToken, Request, StepStream, TextStream

EVENTS = "text/event-stream"


def event(value: Any, name: str = "") -> bytes:
    """Return one event with JSON, and with a name where it has one."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode_json(value) + b"\n\n"


def streaming_started(requests: Sequence[Request]) -> bool:
    """Return whether a part of the response to some requests was sent."""
    streams = [stream for each in requests for stream in (each.stream, each.progress) if stream]
    return any(stream.has_begun for stream in streams)


def _events(http_request: HttpRequest, body: bytes) -> HttpResponse:
    return HttpResponse(body, content_type=EVENTS, headers=http_request.response_headers)


class EventStream(TextStream, ABC):
    """Sends new text as events, where the HTTP request can be answered in parts.

    Args:
        http_request: the request.
    """

    def __init__(self, http_request: HttpRequest) -> None:
        super().__init__(self._send_new)
        self._http_request = http_request

    @abstractmethod
    def part(self, text: str, tokens: Sequence[GeneratedToken], *, first: bool) -> bytes:
        """Return the events of new text, and of its tokens where they are recorded."""

    @property
    def can_send(self) -> bool:
        """Whether the request can be answered in parts."""
        return self._http_request.send is not None

    def emit(self, text: str, tokens: Sequence[GeneratedToken] = ()) -> None:
        if self.can_send:
            super().emit(text, tokens)

    def _send_new(self, new: str, tokens: Sequence[GeneratedToken]) -> None:
        self.send(self.part(new, tokens, first=self.emitted == new))

    def send(self, events: bytes) -> None:
        """Send events, where the request can be answered in parts."""
        if self._http_request.send is not None:
            self._http_request.send(_events(self._http_request, events))


class StepEventStream(StepStream):
    """Sends the steps of images as events, where the HTTP request can be answered in parts.

    Args:
        http_request: the request.
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
            self._http_request.send(_events(self._http_request, self._part(step, steps)))
