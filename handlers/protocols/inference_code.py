"""Requests to a model with its own inference code, which gets each body as it is.

    application/json            {"inputs": …, "parameters": {…}}
    text/csv                    a header line, and a row for each input
    text/plain                  {"inputs": the text}
    image/*                     {"inputs": the image, in RGB}
    audio/*, other types        {"inputs": the bytes}

Every model has paths that tell whether it answers, such as v2/models/M/ready.

https://huggingface.co/docs/inference-endpoints/guides/custom_handler
https://huggingface.co/docs/sagemaker/inference#user-defined-code-and-modules
"""

from __future__ import annotations

import csv
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from io import StringIO
from typing import Any

from ..config.messages import shorten
from ..errors import BadRequest, NotFound, RequestError, Unprocessable
from ..http.request import HttpRequest
from ..http.response import JSON, HttpResponse
from ..media.images import read_image
from ..types.request import Request, RequestBody
from .base import NO_BODY, BaseProtocol, ParsedRequest
from .result_formats import CSV

IMAGES = ("image/", "application/x-image")
INPUTS = "inputs"
STATUS = re.compile(
    r"info|(v1/)?models(/[^:]+)?|v2/health/(live|ready)|v2/models(/[^/]+(/versions/[^/]+)?/ready)?"
)


class StatusProtocol(BaseProtocol):
    """The paths of another protocol that tell which model there is, and whether it answers."""

    body_keys = NO_BODY

    def __init__(self, protocol: BaseProtocol) -> None:
        super().__init__(protocol.model)
        self._protocol = protocol

    def recognises(self, http_request: HttpRequest) -> bool:
        is_status = STATUS.fullmatch(http_request.path) is not None
        return is_status and self._protocol.recognises(http_request)

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        return self._protocol.parse(http_request)

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        return self._protocol.write(parsed, outcomes)

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        return self._protocol.error_response(http_request, error)


class InferenceCodeProtocol(BaseProtocol):
    """One request for each body."""

    def recognises(self, http_request: HttpRequest) -> bool:
        return True

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        if http_request.explains:
            raise Unprocessable("This model answers by its own code, and is not explained.")
        if http_request.path:
            raise NotFound(
                f"There is no path {shorten(http_request.path)} below this model; its own code"
                " answers at the model's path alone."
            )
        body = RequestBody(
            _content(http_request),
            http_request.type or JSON,
            http_request.header("accept"),
            partial(_decode, http_request, self.model.settings.max_image_pixels),
        )
        return ParsedRequest(http_request, [Request(body)])

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        (outcome,) = outcomes
        if isinstance(outcome, RequestError):
            return self.error_response(parsed.http_request, outcome)
        return HttpResponse(outcome.content, content_type=outcome.content_type)


def _content(http_request: HttpRequest) -> str | bytes:
    """Return the body as SageMaker's containers pass it: text, where its type is one."""
    raw = http_request.raw
    if isinstance(raw, (bytes, bytearray)):
        is_text = http_request.type.startswith("text/") or http_request.type == JSON
        return str(http_request.text) if is_text or not http_request.type else bytes(raw)
    if isinstance(raw, str):
        return raw
    # TorchServe has read the JSON, or it is a form, whose files are in base64.
    content = http_request.content if raw is None else raw
    return json.dumps(content, default=lambda file: b64encode(file).decode())


def _decode(http_request: HttpRequest, max_pixels: int) -> dict[str, Any]:
    """Return the content of a body as an object.

    Raises:
        RequestError: it cannot be decoded.
    """
    if http_request.type.startswith(IMAGES):
        return {INPUTS: read_image(bytes(http_request.raw), "The body", max_pixels)}
    if http_request.type == CSV:
        return {INPUTS: _rows(str(http_request.text))}
    content = http_request.content
    return dict(content) if isinstance(content, dict) else {INPUTS: content}


def _rows(text: str) -> list[Any]:
    """Return the rows of a table, or its column of inputs."""
    rows: list[Any] = list(csv.DictReader(StringIO(text)))
    if not rows:
        raise BadRequest("The body has no rows; send a header line and a row for each input.")
    return [row[INPUTS] for row in rows] if INPUTS in rows[0] else rows
