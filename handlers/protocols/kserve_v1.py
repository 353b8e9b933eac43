"""KServe's and TensorFlow Serving's V1: `{"instances": […]}` -> `{"predictions": […]}`.

TorchServe's routes are `/v1/models/<model>:predict` and `:explain`, which answers with
`{"explanations": […]}`; the same bodies may go to `/predictions/<model>`. Vertex AI sends
`{"instances": […], "parameters": {…}}`.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.attempts import attempt
from handlers.bodies import Post
from handlers.errors import BadRequest, RequestError
from handlers.protocols._items import check_keys, parameters_in, read_item
from handlers.protocols.base import ItemProtocol
from handlers.requests import Request
from handlers.texts import kind_of

# TensorFlow Serving's clients name a signature; a model here has one.
KEYS = ["instances", "parameters", "signature_name"]


class Protocol(ItemProtocol):
    """One request an instance, answered as an item of a list is; its parameters go first."""

    rank = 40

    def recognises(self, post: Post) -> bool:
        content = post.content
        return isinstance(content, dict) and "instances" in content

    def items(self, post: Post) -> list[Request | RequestError]:
        body = post.content
        check_keys(body, KEYS, "The body")
        instances, shared = body["instances"], parameters_in(body)
        if not isinstance(instances, list):
            raise BadRequest(f"instances must be a list, and is {kind_of(instances)}.")
        self.check_count(len(instances), "instances")
        return [attempt(self._request, post, instance, shared) for instance in instances]

    def reply(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Any:
        return {"explanations" if post.explains else "predictions": list(results)}

    def complaint(self, error: RequestError) -> Any:
        return {"error": str(error)}

    def _request(self, post: Post, instance: Any, shared: Mapping[str, Any]) -> Request:
        mode = self.model.mode
        inputs, own = read_item(instance, mode, "instance", explains=post.explains)
        return Request(inputs, {**shared, **own}, alone=False)
