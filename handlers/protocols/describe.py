"""TorchServe's describe call, `GET /models/<name>?customized=true` of the management address."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import handlers
from handlers.http.request import HttpRequest
from handlers.protocols.base import RowProtocol
from handlers.schemas.request import Request

LIBRARIES = ("torch", "transformers")


class Protocol(RowProtocol):
    """Tells what is served; TorchServe shows it as the object `customizedMetadata`.

    What is null there, such as a limit that there is not, TorchServe leaves out.
    """

    def recognises(self, http_request: HttpRequest) -> bool:
        return http_request.describes

    def read(self, http_request: HttpRequest) -> list[Request]:
        return []

    def reply(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> Any:
        versions = {name: version(name) for name in LIBRARIES}
        kit = {"transformers-on-torchserve": handlers.__version__}
        return {
            **self.model.as_json(),
            "versions": {"python": platform.python_version(), **kit, **versions},
        }
