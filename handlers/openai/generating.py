"""What the endpoints share that continue texts, at once or as a stream of events."""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from handlers.answer import Answer, encode
from handlers.bodies import Post
from handlers.errors import Unprocessable
from handlers.events import EVENTS, event
from handlers.openai.base import BaseEndpoint
from handlers.openai.bodies import Sampling
from handlers.openai.events import DONE, ChoiceListener
from handlers.requests import Request

REASONS = {"length": "length", "eos_token": "stop", "stop_sequence": "stop"}


class Generating(BaseEndpoint):
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

    def read(self, post: Post) -> list[Request]:
        if self.model.mode != "text_generation":
            raise Unprocessable(f"This model's mode is {self.model.mode}; it writes no texts.")
        if post.explains:
            raise Unprocessable(f"{self.path} explains nothing; send inputs without this path.")
        body = self.body(post.content)
        inputs = self.inputs(body)
        if not body.stream:
            return [Request(each, body.parameters) for each in inputs]
        head = self._head(self.part)
        # Texts of one prompt cannot be told apart while they are made: each comes as one part.
        numbers = range(0, len(inputs) * body.count, body.count)
        return [
            Request(each, body.parameters, listener=self._listener(post, head, number, each))
            for number, each in zip(numbers, inputs, strict=True)
        ]

    def write(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Answer:
        body = self.body(post.content)
        # Without a draw all answers to a prompt are the same: one is made, and told as often.
        results = [texts * (body.count // len(texts)) for texts in results]
        usage = _usage(results)
        if isinstance(requests[0].listener, ChoiceListener):
            return Answer(self._stream(body, requests, results, usage), content_type=EVENTS)
        texts = [text for result in results for text in result]
        choices = [
            {"index": number, **self.choice(text["generated_text"]), "finish_reason": _reason(text)}
            for number, text in enumerate(texts)
        ]
        return Answer(encode({**self._head(self.kind), "choices": choices, "usage": usage}))

    def _listener(self, post: Post, head: Any, number: int, asked: Any) -> ChoiceListener:
        before = asked if isinstance(asked, str) and post.content.get("echo") else ""
        return ChoiceListener(post, head, number, self.piece, before)

    def _stream(
        self, body: Sampling, requests: Sequence[Request], results: Sequence[Any], usage: Any
    ) -> bytes:
        parts: list[bytes] = []
        head: Mapping[str, Any] = {}
        for request, texts in zip(requests, results, strict=True):
            listener: Any = request.listener
            head = listener.head
            for number, text in enumerate(texts):
                teller = listener.sibling(number) if number else listener
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
