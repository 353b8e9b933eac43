"""`models`: the model that is served here, as a list of one.

KServe's V1 asks below the same path whether a model is ready: `{"name", "ready"}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.protocols.openai.endpoint import BaseEndpoint
from handlers.schemas.request import Request


class Endpoint(BaseEndpoint):
    """Tells the model's name; `models/<name>` tells it alone."""

    path = "models"

    def read(self, http_request: HttpRequest) -> list[Request]:
        return []

    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> HttpResponse:
        model = {"id": self.model.name, "object": "model", "created": 0, "owned_by": "torchserve"}
        if http_request.path.rsplit("/", maxsplit=1)[-1] != self.path:
            return HttpResponse(encode_json({**model, "name": self.model.name, "ready": True}))
        return HttpResponse(encode_json({"object": "list", "data": [model]}))
