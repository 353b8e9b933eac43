"""KServe's and TensorFlow Serving's V1: `{"instances": […]}` -> `{"predictions": […]}`.

TorchServe's routes are `/v1/models/<model>:predict` and `:explain`, which answers with
`{"explanations": […]}`; the same bodies may go to `/predictions/<model>`. Below a path, where the
route can be seen, the list may be `inputs` as well. Vertex AI sends
`{"instances": […], "parameters": {…}}`.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from typing_extensions import TypedDict

from ..errors import BadRequest, RequestError, attempt
from ..http.request import HttpRequest
from ..types.parameters import json_type
from ..types.request import Request
from .base import BaseProtocol, ParsedRequest
from .items import check_keys, read_item, read_parameters

# TensorFlow Serving's clients name a signature; a model here has one.
KEYS = ["parameters", "signature_name"]
INSTANCES, INPUTS = "instances", "inputs"
# On other paths a body with `inputs` belongs to other protocols.
ROUTE = re.compile(r"v1/models/[^:]+:(predict|explain)")


class KServeError(TypedDict):
    """An error as KServe's V1 and the Open Inference Protocol have it."""

    error: str


class Protocol(BaseProtocol):
    """One request for each instance; an instance's parameters take precedence over the body's."""

    body_keys = MappingProxyType({INSTANCES: object})

    def recognises(self, http_request: HttpRequest) -> bool:
        content = http_request.content if http_request.has_body else None
        if not isinstance(content, dict):
            return False
        on_route = ROUTE.fullmatch(http_request.path) is not None
        return INSTANCES in content or (on_route and INPUTS in content)

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        body = http_request.content
        key = INSTANCES if INSTANCES in body else INPUTS
        check_keys(body, [key, *KEYS], "The body")
        instances, shared = body[key], read_parameters(body)
        if key == INPUTS and not isinstance(instances, list):
            instances = [instances]
        if not isinstance(instances, list):
            raise BadRequest(f"{key} must be a list, and is {json_type(instances)}.")
        self.check_count(len(instances), key)
        items = [
            attempt(self._request, instance, shared, http_request.explains)
            for instance in instances
        ]
        return ParsedRequest(http_request, items)

    def response_body(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        return {"explanations" if parsed.http_request.explains else "predictions": list(results)}

    def error_body(self, error: RequestError) -> KServeError:
        return {"error": str(error)}

    def _request(self, instance: Any, shared: Mapping[str, Any], explains: bool) -> Request:
        columns = self.model.task.wire.input_columns
        inputs, own = read_item(instance, columns, "instance", explains=explains)
        return Request(inputs, {**shared, **own}, is_batch_item=True)
