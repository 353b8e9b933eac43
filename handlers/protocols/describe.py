"""TorchServe's describe call, `GET /models/<name>?customized=true` of the management address."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from handlers.bodies import Post
from handlers.protocols.base import RowProtocol
from handlers.requests import Request

LIBRARIES = ("torch", "transformers")


class Protocol(RowProtocol):
    """Tells what is served; TorchServe shows it as the object `customizedMetadata`.

    What is null there, such as a limit that there is not, TorchServe leaves out.
    """

    rank = 0

    def recognises(self, post: Post) -> bool:
        return post.describes

    def read(self, post: Post) -> list[Request]:
        return []

    def reply(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Any:
        versions = {name: version(name) for name in LIBRARIES}
        return {
            **self.model.as_json(),
            "versions": {"python": platform.python_version(), **versions},
        }
