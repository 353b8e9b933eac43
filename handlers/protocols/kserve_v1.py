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
from handlers.protocols.base import ItemProtocol
from handlers.protocols.items import check_keys, parameters_in, read_item
from handlers.schemas.request import Request
from handlers.schemas.text_checks import json_type

# TensorFlow Serving's clients name a signature; a model here has one.
KEYS = ["instances", "parameters", "signature_name"]


class Protocol(ItemProtocol):
    """One request an instance, answered as an item of a list is; its parameters go first."""

    def recognises(self, http_request: HttpRequest) -> bool:
        content = http_request.content
        return isinstance(content, dict) and "instances" in content

    def items(self, http_request: HttpRequest) -> list[Request | RequestError]:
        body = http_request.content
        check_keys(body, KEYS, "The body")
        instances, shared = body["instances"], parameters_in(body)
        if not isinstance(instances, list):
            raise BadRequest(f"instances must be a list, and is {json_type(instances)}.")
        self.check_count(len(instances), "instances")
        return [attempt(self._request, http_request, instance, shared) for instance in instances]

    def reply(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> Any:
        return {"explanations" if http_request.explains else "predictions": list(results)}

    def complaint(self, error: RequestError) -> Any:
        return {"error": str(error)}

    def _request(
        self, http_request: HttpRequest, instance: Any, shared: Mapping[str, Any]
    ) -> Request:
        mode = self.model.mode
        inputs, own = read_item(instance, mode, "instance", explains=http_request.explains)
        return Request(inputs, {**shared, **own}, alone=False)
