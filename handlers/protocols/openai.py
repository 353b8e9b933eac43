"""OpenAI's API below the model's path: `chat/completions`, `completions` and `models`.

A client's base URL is `http://host:8080/predictions/<model>/<version>/v1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from handlers.answer import Answer
from handlers.bodies import Post
from handlers.description import Description
from handlers.errors import NotFound, RequestError
from handlers.events import EVENTS, event, have_begun
from handlers.openai.base import BaseEndpoint
from handlers.openai.events import DONE
from handlers.openai.generating import Generating
from handlers.protocols.base import BaseProtocol
from handlers.requests import Request

# All below v1, but what is KServe's, such as v1/models/M:predict; v1 may be left out.
PATH = re.compile(
    r"v1(?!/models/.*:)(/.*)?"
    r"|(chat/completions|completions|models|embeddings|responses)(/[^:]*)?"
)
ENDPOINTS = ("chat", "completions", "models")


class Protocol(BaseProtocol):
    """Requests of OpenAI's clients; `model` may be any name, since the path chose already."""

    rank = 20

    def __init__(self, model: Description) -> None:
        super().__init__(model)
        found = [import_module(f"handlers.openai.{name}").Endpoint(model) for name in ENDPOINTS]
        self._endpoints: dict[str, BaseEndpoint] = {each.path: each for each in found}

    def recognises(self, post: Post) -> bool:
        return PATH.fullmatch(post.path) is not None

    def read(self, post: Post) -> list[Request]:
        endpoint = self._endpoint(post)
        requests = endpoint.read(post)
        if isinstance(endpoint, Generating):
            self.check_count(len(requests), "prompt")
        return requests

    def write(self, post: Post, requests: Sequence[Request], outcomes: Sequence[Any]) -> Answer:
        for outcome in outcomes:
            if isinstance(outcome, RequestError):
                return self._broken(post, requests, outcome)
        return self._endpoint(post).write(post, requests, outcomes)

    def complaint(self, error: RequestError) -> Any:
        ours = error.status >= 500
        kind = "server_error" if ours else "invalid_request_error"
        return {"error": {"message": str(error), "type": kind, "param": None, "code": None}}

    def _broken(self, post: Post, requests: Sequence[Request], error: RequestError) -> Answer:
        """Return an error; where the answer has begun, as its last event."""
        if not have_begun(requests):
            return self.refuse(post, error)
        return Answer(event(self.complaint(error)) + DONE, content_type=EVENTS)

    def _endpoint(self, post: Post) -> BaseEndpoint:
        path = post.path.removeprefix("v1/")
        if path.startswith("models/"):
            path = "models"  # one of them, whatever it is called
        if path not in self._endpoints:
            known = ", ".join(self._endpoints)
            raise NotFound(f"There is no {path} here; there are {known}.")
        return self._endpoints[path]
