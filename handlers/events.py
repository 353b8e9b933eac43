"""Server-sent events: an answer in parts, each as soon as it is known.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from handlers.answer import Answer, encode
from handlers.bodies import Post
from handlers.listener import Listener
from handlers.requests import Request

EVENTS = "text/event-stream"


def event(value: Any) -> bytes:
    """Return one event that carries JSON."""
    return b"data: " + encode(value) + b"\n\n"


def have_begun(requests: Sequence[Request]) -> bool:
    """Tell whether a part of the answer to some requests was sent."""
    return any(each.listener.heard for each in requests if each.listener)


class EventListener(Listener, ABC):
    """Sends what it hears, an event each; where that cannot be done, it hears nothing.

    Args:
        post: whose answer it is.
    """

    def __init__(self, post: Post) -> None:
        super().__init__(self._hear_new)
        self._post = post

    @abstractmethod
    def part(self, text: str, *, first: bool) -> bytes:
        """Return the event of new text."""

    def tell(self, text: str) -> None:
        if self._post.send is not None:
            super().tell(text)

    def _hear_new(self, new: str) -> None:
        if self._post.send is not None:
            body = self.part(new, first=self.heard == new)
            self._post.send(Answer(body, content_type=EVENTS))
