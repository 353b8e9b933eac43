"""The Open Inference Protocol V2 of KServe, Triton and MLServer: tensors in, a tensor out.

Each row of the tensor `output` is the JSON text of its request's result, as MLServer's Hugging Face
runtime has it. `handlers/open_inference/paths.py` has the paths.

TorchServe's own gRPC brings such requests as well, with `ts_open_inference_protocol` switched on.
It writes each element of BYTES as JSON, tells neither status nor header, and an answer of another
shape kills its worker: so there an element is the result itself, and an error is an answer, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.errors import RequestError
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.protocols.base import ItemProtocol
from handlers.protocols.open_inference.body import LENGTH_OF_JSON, Body, parts_of
from handlers.protocols.open_inference.metadata import METADATA
from handlers.protocols.open_inference.paths import BEGINS, INFER, purpose_of
from handlers.protocols.open_inference.responses import binary_response, response_body
from handlers.protocols.open_inference.rows import Rows
from handlers.protocols.open_inference.tensors import tensors_of
from handlers.schemas.request import Request


class Protocol(ItemProtocol):
    """One request a row of the tensors, answered as an item of a list is."""

    def recognises(self, http_request: HttpRequest) -> bool:
        if (
            _by_torchserves_grpc(http_request)
            or BEGINS.match(http_request.path)
            or http_request.header(LENGTH_OF_JSON)
        ):
            return True
        content = http_request.content
        return isinstance(content, dict) and _are_tensors(content.get("inputs"))

    def read(self, http_request: HttpRequest) -> list[Request]:
        return super().read(http_request) if self._purpose(http_request) == INFER else []

    def items(self, http_request: HttpRequest) -> list[Request | RequestError]:
        content, behind = parts_of(http_request)
        body = Body.of(content)
        tensors = tensors_of(body, behind, in_base64=_by_torchserves_grpc(http_request))
        rows = Rows(tensors, body.parameters or {}, self.model, explains=http_request.explains)
        self.check_count(rows.count, "inputs")
        return rows.requests()

    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], outcomes: Sequence[Any]
    ) -> HttpResponse:
        purpose = self._purpose(http_request)
        if purpose != INFER:
            return HttpResponse(encode_json(METADATA[purpose](self.model)))
        return super().write(http_request, requests, outcomes)

    def reply(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> Any:
        body = Body.of(parts_of(http_request)[0])
        if _by_torchserves_grpc(http_request):
            return response_body(body.id or "", self.model, results)
        return response_body(
            body.id, self.model, [encode_json(result).decode() for result in results]
        )

    def lay_out(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> HttpResponse:
        in_bytes = http_request.takes_bytes and not _by_torchserves_grpc(http_request)
        if not in_bytes or not Body.of(parts_of(http_request)[0]).wants_bytes:
            return super().lay_out(http_request, requests, results)
        return binary_response(self.reply(http_request, requests, results))

    def complaint(self, error: RequestError) -> Any:
        return {"error": str(error)}

    def refuse(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        if not _by_torchserves_grpc(http_request):
            return super().refuse(http_request, error)
        reply = response_body(
            http_request.raw.get("id") or "", self.model, [error.body()], name="error"
        )
        return HttpResponse(encode_json(reply), error.status)

    def _purpose(self, http_request: HttpRequest) -> str:
        return purpose_of(http_request.path, self.model)


def _by_torchserves_grpc(http_request: HttpRequest) -> bool:
    """Tell whether TorchServe read the tensors: what its other gRPC service brings are bytes."""
    return (
        http_request.by_grpc
        and "body" in http_request.headers
        and isinstance(http_request.raw, dict)
    )


def _are_tensors(inputs: Any) -> bool:
    """Tell whether inputs are tensors, also where one lacks what all must have."""
    if not isinstance(inputs, list) or not all(isinstance(each, dict) for each in inputs):
        return False
    return any({"datatype", "shape"} & each.keys() for each in inputs)
