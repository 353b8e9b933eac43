"""The events of text-generation-inference's streams: each tells new text as if it were one token.

    data: {"index": 1, "token": {"id": null, "text": " a", "logprob": null, "special": false},
           "generated_text": null, "details": null}

The last event has the rest of the text, the whole answer and, where they were asked for, details.
Ids and probabilities are null: a text is heard, not its tokens.

https://huggingface.co/docs/text-generation-inference/conceptual/streaming
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handlers.errors import RequestError
from handlers.http.request import HttpRequest
from handlers.http.server_sent_events import EventStream, event

ERROR_TYPES = {400: "validation", 413: "validation", 422: "validation", 503: "overloaded"}


class TokenEventStream(EventStream):
    """Sends what it hears of one text.

    Args:
        post: whose answer it is.
    """

    def __init__(self, http_request: HttpRequest) -> None:
        super().__init__(http_request)
        self._told = 0

    def part(self, text: str, *, first: bool) -> bytes:
        return self._event(text)

    def last(self, new: str, answer: Mapping[str, Any]) -> bytes:
        """Return the last event.

        Args:
            new: the whole new text.
            answer: what the task answers, with prompt or without.
        """
        rest = self.not_emitted(new)
        return self._event(rest, answer["generated_text"], answer.get("details"))

    def _event(self, text: str, generated_text: Any = None, details: Any = None) -> bytes:
        self._told += 1
        token = {"id": None, "text": text, "logprob": None, "special": False}
        whole = {"generated_text": generated_text, "details": details}
        return event({"index": self._told, "token": token, **whole})


def broken(error: RequestError) -> bytes:
    """Return the last event of an answer that broke off."""
    return event({"error": str(error), "error_type": ERROR_TYPES.get(error.status, "generation")})
