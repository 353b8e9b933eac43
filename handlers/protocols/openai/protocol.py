"""OpenAI's API below the model's path: `chat/completions`, `completions` and `models`.

A client's base URL is `http://host:8080/predictions/<model>/<version>/v1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from handlers.errors import NotFound, RequestError
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.http.server_sent_events import EVENTS, event, streaming_started
from handlers.protocols.base import BaseProtocol
from handlers.protocols.openai.endpoint import BaseEndpoint
from handlers.protocols.openai.events import DONE
from handlers.protocols.openai.generation import GenerationEndpoint
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.request import Request

# All below v1, but what is KServe's, such as v1/models/M:predict; v1 may be left out.
PATH = re.compile(
    r"v1(?!/models/.*:)(/.*)?"
    r"|(chat/completions|completions|models|embeddings|responses)(/[^:]*)?"
)
ENDPOINTS = ("chat", "completions", "models")


class Protocol(BaseProtocol):
    """Requests of OpenAI's clients; `model` may be any name, since the path chose already."""

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        found = [
            import_module(f"handlers.protocols.openai.{name}").Endpoint(model) for name in ENDPOINTS
        ]
        self._endpoints: dict[str, BaseEndpoint] = {each.path: each for each in found}

    def recognises(self, http_request: HttpRequest) -> bool:
        return PATH.fullmatch(http_request.path) is not None

    def read(self, http_request: HttpRequest) -> list[Request]:
        endpoint = self._endpoint(http_request)
        requests = endpoint.read(http_request)
        if isinstance(endpoint, GenerationEndpoint):
            self.check_count(len(requests), "prompt")
        return requests

    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], outcomes: Sequence[Any]
    ) -> HttpResponse:
        for outcome in outcomes:
            if isinstance(outcome, RequestError):
                return self._broken(http_request, requests, outcome)
        return self._endpoint(http_request).write(http_request, requests, outcomes)

    def complaint(self, error: RequestError) -> Any:
        ours = error.status >= 500
        kind = "server_error" if ours else "invalid_request_error"
        return {"error": {"message": str(error), "type": kind, "param": None, "code": None}}

    def _broken(
        self, http_request: HttpRequest, requests: Sequence[Request], error: RequestError
    ) -> HttpResponse:
        """Return an error; where the answer has begun, as its last event."""
        if not streaming_started(requests):
            return self.refuse(http_request, error)
        return HttpResponse(event(self.complaint(error)) + DONE, content_type=EVENTS)

    def _endpoint(self, http_request: HttpRequest) -> BaseEndpoint:
        path = http_request.path.removeprefix("v1/")
        if path.startswith("models/"):
            path = "models"  # one of them, whatever it is called
        if path not in self._endpoints:
            known = ", ".join(self._endpoints)
            raise NotFound(f"There is no {path} here; there are {known}.")
        return self._endpoints[path]
