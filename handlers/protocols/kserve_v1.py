"""KServe's and TensorFlow Serving's V1: `{"instances": […]}` -> `{"predictions": […]}`.

TorchServe's routes are `/v1/models/<model>:predict` and `:explain`, which answers with
`{"explanations": […]}`; the same bodies may go to `/predictions/<model>`. Vertex AI sends
`{"instances": […], "parameters": {…}}`.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.errors import BadRequest, RequestError, attempt
from handlers.http.request import HttpRequest
from handlers.protocols.base import BaseProtocol, Exchange
from handlers.protocols.items import check_keys, read_item, read_parameters
from handlers.schemas.request import Request
from handlers.schemas.text_checks import json_type

# TensorFlow Serving's clients name a signature; a model here has one.
KEYS = ["instances", "parameters", "signature_name"]


class Protocol(BaseProtocol):
    """One request for each instance; an instance's parameters take precedence over the body's."""

    def recognises(self, http_request: HttpRequest) -> bool:
        content = http_request.content
        return isinstance(content, dict) and "instances" in content

    def parse(self, http_request: HttpRequest) -> Exchange:
        body = http_request.content
        check_keys(body, KEYS, "The body")
        instances, shared = body["instances"], read_parameters(body)
        if not isinstance(instances, list):
            raise BadRequest(f"instances must be a list, and is {json_type(instances)}.")
        self.check_count(len(instances), "instances")
        items = [
            attempt(self._request, instance, shared, http_request.explains)
            for instance in instances
        ]
        return Exchange(http_request, items)

    def response_body(self, exchange: Exchange, results: Sequence[Any]) -> Any:
        return {"explanations" if exchange.explains else "predictions": list(results)}

    def error_body(self, error: RequestError) -> Any:
        return {"error": str(error)}

    def _request(self, instance: Any, shared: Mapping[str, Any], explains: bool) -> Request:
        columns = self.model.input_columns
        inputs, own = read_item(instance, columns, "instance", explains=explains)
        return Request(inputs, {**shared, **own}, alone=False)
