"""TorchServe's describe call, `GET /models/<name>?customized=true` of the management address.

The path `describe` below a model has the same response. TorchServe passes it on as a prediction, so
that it works with `continuousBatching` as well.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from .. import __version__
from ..http.request import HttpRequest
from .base import NO_BODY, BaseProtocol, ParsedRequest

LIBRARIES = ("torch", "transformers")
PATH = "describe"


class Protocol(BaseProtocol):
    """Describes the served model; TorchServe returns it as the object `customizedMetadata`.

    TorchServe leaves out what is null there, such as a limit that is not set.
    """

    body_keys = NO_BODY

    def recognises(self, http_request: HttpRequest) -> bool:
        return http_request.describes or http_request.path == PATH

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        return ParsedRequest(http_request)

    def response_body(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        versions = {name: version(name) for name in LIBRARIES}
        kit = {"transformers-on-torchserve": __version__}
        return {
            **self.model.as_json(),
            "versions": {"python": platform.python_version(), **kit, **versions},
        }
