"""The response to a request for a path below a model's own that no protocol has."""

from __future__ import annotations

import re

from ..config.messages import shorten
from ..errors import NotFound
from ..http.request import HttpRequest
from .base import NO_BODY, BaseProtocol, ParsedRequest

# The model's own path and KServe's: clients send bodies of the protocols after this one there, too.
KNOWN = re.compile(r"(v1/models/[^:]+:(predict|explain))?")


class Protocol(BaseProtocol):
    """Refuses other paths than the model's own; the protocols before this one recognise theirs."""

    body_keys = NO_BODY

    def recognises(self, http_request: HttpRequest) -> bool:
        return KNOWN.fullmatch(http_request.path) is None

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        raise NotFound(
            f"There is no path {shorten(http_request.path)} below this model; remove it, or use one"
            " that the model's OpenAPI document names."
        )
