"""The Open Inference Protocol V2 of KServe, Triton and MLServer: tensors in, a tensor out.

Each row of the tensor `output` is the JSON text of its request's result, as in MLServer's Hugging
Face runtime. The paths below a model's own, `/predictions/<model>/<version>/`:

    v2                       the server
    v2/health/live, ready    whether it answers
    v2/models                the names of the models: the one of this path
    v2/models/M              the inputs and outputs of M; also M/versions/V, here and below
    v2/models/M/ready        whether M answers
    v2/models/M/infer        a prediction
    v2/models/M/explain      an explanation

TorchServe's own routes `/v2/models/M/infer` and `explain` come without a path.

TorchServe's own gRPC service sends such requests as well, with `ts_open_inference_protocol`
enabled. It encodes each element of BYTES as JSON and passes neither status nor header, and a
response of another shape ends its worker. So there an element is the result itself, and an error is
a response of the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NotRequired

from typing_extensions import TypedDict

from handlers.config.quoting import shorten
from handlers.errors import NotFound, RequestError
from handlers.http.request import HttpRequest
from handlers.http.response import JSON, HttpResponse, encode_json
from handlers.protocols.base import BaseProtocol, ParsedRequest
from handlers.protocols.kserve_v1 import KServeError
from handlers.protocols.open_inference.rows import Rows
from handlers.protocols.open_inference.tensors import (
    BYTES,
    LENGTH_OF_JSON,
    MAX_ID,
    OUTPUT,
    Datatype,
    InferenceRequest,
    pack_texts,
    read_tensors,
    split_body,
)
from handlers.types.model_info import ModelInfo

OCTETS = "application/octet-stream"
PREFIX = re.compile(r"v2(/|$)")
MODEL = re.compile(r"v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?(?:/(?P<end>.+))?")

Describe = Callable[[ModelInfo], dict[str, Any]]


def describe_server(_model: ModelInfo) -> dict[str, Any]:
    """Return the server's name, its version and the extensions of the protocol that it supports."""
    return {
        "name": "torchserve",
        "version": version("torchserve"),
        "extensions": ["binary_tensor_data"],
    }


def describe_model(model: ModelInfo) -> dict[str, Any]:
    """Return the input and output tensors of a model, without those of its parameters."""
    names = model.input_columns[0]
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": f"transformers_{model.save_mode}",
        "inputs": [{"name": name, "datatype": BYTES, "shape": [-1]} for name in names],
        "outputs": [{"name": OUTPUT, "datatype": BYTES, "shape": [-1, 1]}],
    }


SERVER_PATHS: dict[str, Describe] = {
    "v2": describe_server,
    "v2/health/live": lambda _model: {"live": True},
    "v2/health/ready": lambda _model: {"ready": True},
    "v2/models": lambda model: {"models": [model.name]},
}
# The ends of a model's paths; None for those that run the model.
MODEL_PATHS: dict[str | None, Describe | None] = {
    None: describe_model,
    "ready": lambda model: {"name": model.name, "ready": True},
    "infer": None,
    "explain": None,
}


class ResponseOutput(TypedDict):
    """An output tensor, flat, in row-major order; texts are BYTES."""

    name: str
    datatype: Datatype
    shape: list[int]
    parameters: NotRequired[dict[str, Any]]
    data: list[Any]


class InferenceResponse(TypedDict):
    """Output tensors; `id` is the request's."""

    model_name: str
    model_version: str
    id: NotRequired[str]
    outputs: list[ResponseOutput]


@dataclass(frozen=True)
class Format:
    """The form of the response to an inference request.

    Attributes:
        request_id: the request's `id`.
        as_bytes: whether the tensor follows the JSON as bytes.
        as_values: whether elements are results instead of their JSON, for TorchServe's gRPC.
    """

    request_id: str | None
    as_bytes: bool
    as_values: bool


class Protocol(BaseProtocol):
    """One request for each row of the tensors, answered as an item of a list is."""

    # Texts are tensors, too.
    body_keys = MappingProxyType({"inputs": list})

    def recognises(self, http_request: HttpRequest) -> bool:
        if (
            _by_torchserve_grpc(http_request)
            or PREFIX.match(http_request.path)
            or http_request.header(LENGTH_OF_JSON)
        ):
            return True
        if not http_request.has_body:
            return False
        content = http_request.content
        return isinstance(content, dict) and _are_tensors(content.get("inputs"))

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        describe = find_description(http_request.path, self.model)
        if describe is not None:
            found = describe(self.model)
            return ParsedRequest(http_request, context=found, asks_health="ready" in found)
        content, data = split_body(http_request)
        body = InferenceRequest.parse(content)
        by_grpc = _by_torchserve_grpc(http_request)
        tensors = read_tensors(body, data, self.model.limits.max_rows, in_base64=by_grpc)
        rows = Rows(tensors, body.parameters or {}, self.model, explains=http_request.explains)
        self.check_count(rows.count, "inputs")
        as_bytes = http_request.takes_bytes and not by_grpc and body.returns_bytes
        request_id = body.id or "" if by_grpc else body.id
        return ParsedRequest(http_request, rows.requests(), Format(request_id, as_bytes, by_grpc))

    def response_body(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        form = parsed.context
        if not isinstance(form, Format):
            return form
        elements = results if form.as_values else [encode_json(each).decode() for each in results]
        return self._inference_response(form.request_id, elements)

    def response(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        if isinstance(parsed.context, Format) and parsed.context.as_bytes:
            return _binary_response(self.response_body(parsed, results))
        return super().response(parsed, results)

    def error_body(self, error: RequestError) -> KServeError:
        return {"error": str(error)}

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        if not _by_torchserve_grpc(http_request):
            return super().error_response(http_request, error)
        body = self._inference_response(_id_of(http_request), [error.body()], output="error")
        return HttpResponse(encode_json(body), error.status)

    def _inference_response(
        self, request_id: str | None, elements: Sequence[Any], output: str = OUTPUT
    ) -> InferenceResponse:
        tensor: ResponseOutput = {
            "name": output,
            "datatype": BYTES,
            "shape": [len(elements), 1],
            "parameters": {"content_type": "hg_jsonlist"},
            "data": list(elements),
        }
        name, number, outputs = self.model.name, self.model.version, [tensor]
        if request_id is None:
            return {"model_name": name, "model_version": number, "outputs": outputs}
        return {"model_name": name, "model_version": number, "id": request_id, "outputs": outputs}


def find_description(path: str, model: ModelInfo) -> Describe | None:
    """Return the function that answers a path; None where the model has to run.

    Raises:
        NotFound: there is no such path, or it is another model's.
    """
    if not PREFIX.match(path):
        return None  # recognised by its body, on a route that is no other protocol's
    if path in SERVER_PATHS:
        return SERVER_PATHS[path]
    found = MODEL.fullmatch(path)
    if found is None or found["end"] not in MODEL_PATHS:
        ends = (f"/{end}" if end else "" for end in MODEL_PATHS)
        known = [*SERVER_PATHS, *(f"v2/models/{model.name}{end}" for end in ends)]
        raise NotFound(f"There is no {shorten(path)} here; there are {', '.join(known)}.")
    if found["name"] != model.name:
        raise NotFound(f"There is no model {shorten(found['name'])} here; there is {model.name}.")
    # Triton's versions are whole numbers.
    if found["version"] is not None and model.version not in (
        found["version"],
        f"{found['version']}.0",
    ):
        raise NotFound(
            f"There is no version {shorten(found['version'])} of {model.name} here; there is"
            f" {model.version}."
        )
    return MODEL_PATHS[found["end"]]


def _binary_response(body: Mapping[str, Any]) -> HttpResponse:
    """Return a response whose tensor follows the JSON as bytes."""
    output = dict(body["outputs"][0])
    data = pack_texts(text.encode("utf-8", "backslashreplace") for text in output.pop("data"))
    output["parameters"] = {**output["parameters"], "binary_data_size": len(data)}
    head = encode_json({**body, "outputs": [output]})
    return HttpResponse(head + data, content_type=OCTETS, headers={LENGTH_OF_JSON: str(len(head))})


def _by_torchserve_grpc(http_request: HttpRequest) -> bool:
    """Return whether TorchServe wrote the body: its other gRPC service declares no type."""
    return http_request.by_grpc and "body" in http_request.row and http_request.type == JSON


def _id_of(http_request: HttpRequest) -> str:
    """Return the id of a request, whose body may be the error."""
    try:
        return shorten(str(http_request.content.get("id") or ""), MAX_ID)
    except (RequestError, AttributeError):
        return ""


def _are_tensors(inputs: Any) -> bool:
    """Return whether inputs are tensors, also where one lacks a required key."""
    if not isinstance(inputs, list) or not all(isinstance(each, dict) for each in inputs):
        return False
    return any({"datatype", "shape"} & each.keys() for each in inputs)
