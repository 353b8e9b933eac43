"""The events of OpenAI's streams: each tells new text of one choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handlers.http.request import HttpRequest
from handlers.http.server_sent_events import EventStream, event

DONE = b"data: [DONE]\n\n"

Piece = Callable[[str, bool], Mapping[str, Any]]


class ChoiceStream(EventStream):
    """Sends what it hears as parts of a choice.

    Args:
        post: whose answer it is.
        head: what every event of the answer tells.
        index: which text of the answer it hears.
        piece: what an event tells of new text, given whether it is the first.
        before: what is told before any new text.
    """

    def __init__(
        self,
        http_request: HttpRequest,
        head: Mapping[str, Any],
        index: int,
        piece: Piece,
        before: str = "",
    ) -> None:
        super().__init__(http_request)
        self.head = head
        self._index, self._piece, self._before = index, piece, before

    def emit(self, text: str) -> None:
        super().emit(self._before + text)

    def part(self, text: str, *, first: bool, reason: str | None = None) -> bytes:
        """Return the event of new text, or of the end and why it came."""
        choice = {"index": self._index, **self._piece(text, first), "finish_reason": reason}
        return event({**self.head, "choices": [choice]})

    def rest(self, text: str, reason: str) -> bytes:
        """Return the events of what was not told of a complete text, and that of its end."""
        new, first = self.not_emitted(text), not self.emitted
        told = self.part(new, first=first) if new or first else b""
        return told + self.part("", first=False, reason=reason)

    def sibling(self, number: int) -> ChoiceStream:
        """Return who tells the text that is so many behind this one."""
        return ChoiceStream(self._http_request, self.head, self._index + number, self._piece)
