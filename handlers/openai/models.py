"""`models`: the model that is served here, as a list of one.

KServe's V1 asks below the same path whether a model is ready: `{"name", "ready"}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.answer import Answer, encode
from handlers.bodies import Post
from handlers.openai.base import BaseEndpoint
from handlers.requests import Request


class Endpoint(BaseEndpoint):
    """Tells the model's name; `models/<name>` tells it alone."""

    path = "models"

    def read(self, post: Post) -> list[Request]:
        return []

    def write(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Answer:
        model = {"id": self.model.name, "object": "model", "created": 0, "owned_by": "torchserve"}
        if post.path.rsplit("/", maxsplit=1)[-1] != self.path:
            return Answer(encode({**model, "name": self.model.name, "ready": True}))
        return Answer(encode({"object": "list", "data": [model]}))
