"""What the endpoints share that continue texts, at once or as a stream of events."""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from handlers.errors import Unprocessable
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.http.server_sent_events import EVENTS, event
from handlers.protocols.openai.bodies import Sampling
from handlers.protocols.openai.endpoint import BaseEndpoint
from handlers.protocols.openai.events import DONE, ChoiceStream
from handlers.schemas.request import Request

REASONS = {"length": "length", "eos_token": "stop", "stop_sequence": "stop"}


class GenerationEndpoint(BaseEndpoint):
    """An endpoint that continues texts.

    Attributes:
        kind: what its answers call themselves; `part` is what parts of one do.
        prefix: what the ids of its answers begin with.
    """

    kind: ClassVar[str]
    part: ClassVar[str]
    prefix: ClassVar[str]

    @abstractmethod
    def body(self, content: Any) -> Sampling:
        """Check a body.

        Raises:
            RequestError: it is wrong, or asks for what cannot be done.
        """

    @abstractmethod
    def inputs(self, body: Any) -> list[Any]:
        """Return what each request of a body asks about."""

    @abstractmethod
    def choice(self, text: str) -> dict[str, Any]:
        """Return what a complete answer tells beside its index and its end."""

    @abstractmethod
    def piece(self, text: str, first: bool) -> dict[str, Any]:
        """Return what a part of an answer tells beside its index and its end."""

    def read(self, http_request: HttpRequest) -> list[Request]:
        if self.model.mode != "text_generation":
            raise Unprocessable(f"This model's mode is {self.model.mode}; it writes no texts.")
        if http_request.explains:
            raise Unprocessable(f"{self.path} explains nothing; send inputs without this path.")
        body = self.body(http_request.content)
        inputs = self.inputs(body)
        if not body.stream:
            return [Request(each, body.parameters) for each in inputs]
        head = self._head(self.part)
        # Texts of one prompt cannot be told apart while they are made: each comes as one part.
        numbers = range(0, len(inputs) * body.count, body.count)
        return [
            Request(
                each, body.parameters, stream=self._choice_stream(http_request, head, number, each)
            )
            for number, each in zip(numbers, inputs, strict=True)
        ]

    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> HttpResponse:
        body = self.body(http_request.content)
        # Without a draw all answers to a prompt are the same: one is made, and told as often.
        results = [texts * (body.count // len(texts)) for texts in results]
        usage = _usage(results)
        if isinstance(requests[0].stream, ChoiceStream):
            return HttpResponse(self._events(body, requests, results, usage), content_type=EVENTS)
        texts = [text for result in results for text in result]
        choices = [
            {"index": number, **self.choice(text["generated_text"]), "finish_reason": _reason(text)}
            for number, text in enumerate(texts)
        ]
        return HttpResponse(
            encode_json({**self._head(self.kind), "choices": choices, "usage": usage})
        )

    def _choice_stream(
        self, http_request: HttpRequest, head: Any, number: int, asked: Any
    ) -> ChoiceStream:
        before = asked if isinstance(asked, str) and http_request.content.get("echo") else ""
        return ChoiceStream(http_request, head, number, self.piece, before)

    def _events(
        self, body: Sampling, requests: Sequence[Request], results: Sequence[Any], usage: Any
    ) -> bytes:
        parts: list[bytes] = []
        head: Mapping[str, Any] = {}
        for request, texts in zip(requests, results, strict=True):
            stream: Any = request.stream
            head = stream.head
            for number, text in enumerate(texts):
                teller = stream.sibling(number) if number else stream
                parts.append(teller.rest(text["generated_text"], _reason(text)))
        options = body.stream_options
        if options and options.include_usage:
            parts.append(event({**head, "choices": [], "usage": usage}))
        return b"".join(parts) + DONE

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.model.name,
        }


def _reason(text: Mapping[str, Any]) -> str:
    return REASONS[text["details"]["finish_reason"]]


def _usage(results: Sequence[Any]) -> dict[str, int]:
    """Return the tokens read and written; a prompt counts once, however many answers it got."""
    read = sum(texts[0]["details"]["input_length"] for texts in results)
    written = sum(text["details"]["generated_tokens"] for texts in results for text in texts)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }
