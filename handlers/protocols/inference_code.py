"""Requests to a model with its own inference code, which gets each body as it is.

    application/json            {"inputs": …, "parameters": {…}}
    text/csv                    a header line, and a row for each input
    text/plain                  {"inputs": the text}
    image/*                     {"inputs": the image, in RGB}
    audio/*, other types        {"inputs": the bytes}

https://huggingface.co/docs/inference-endpoints/guides/custom_handler
https://huggingface.co/docs/sagemaker/inference#user-defined-code-and-modules
"""

from __future__ import annotations

import csv
import json
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
from .base import BaseProtocol, ParsedRequest
from .result_formats import CSV

IMAGES = ("image/", "application/x-image")
INPUTS = "inputs"


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
    # TorchServe has read the JSON, or it is a form.
    return json.dumps(http_request.content if raw is None else raw)


def _decode(http_request: HttpRequest, max_pixels: int) -> dict[str, Any]:
    """Return the content of a body as an object.

    Raises:
        RequestError: it cannot be decoded, or has no inputs.
    """
    if http_request.type.startswith(IMAGES):
        return {INPUTS: read_image(bytes(http_request.raw), "The body", max_pixels)}
    if http_request.type == CSV:
        return {INPUTS: _rows(str(http_request.text))}
    content = http_request.content
    if not isinstance(content, dict):
        return {INPUTS: content}
    if INPUTS not in content:
        raise BadRequest(f"The body has no {INPUTS}; send the input under that key.")
    return dict(content)


def _rows(text: str) -> list[Any]:
    """Return the rows of a table, or its column of inputs."""
    rows: list[Any] = list(csv.DictReader(StringIO(text)))
    if not rows:
        raise BadRequest("The body has no rows; send a header line and a row for each input.")
    return [row[INPUTS] for row in rows] if INPUTS in rows[0] else rows
