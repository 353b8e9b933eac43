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

from ...config.messages import enumerate_names, shorten, suggest
from ...errors import BadRequest, NotFound, RequestError, attempt
from ...http.request import HttpRequest
from ...http.response import JSON, HttpResponse, encode_json
from ...types.model_info import SINGLE_VALUES, Columns, ModelInfo
from ...types.request import Request
from ..base import BaseProtocol, ParsedRequest
from ..items import read_item
from ..kserve_v1 import KServeError
from .tensors import (
    BYTES,
    JSON_TEXTS,
    LENGTH_OF_JSON,
    MAX_ID,
    OUTPUT,
    Datatype,
    InferenceRequest,
    Tensor,
    pack_texts,
    read_tensors,
    split_body,
)

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
    """Return the input and output tensors of a model; parameters are left out."""
    names = model.task.wire.input_columns[0]
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
            return ParsedRequest(http_request, context=found, checks_health="ready" in found)
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
    """Return whether inputs are tensors, even if a required key is missing."""
    if not isinstance(inputs, list) or not all(isinstance(each, dict) for each in inputs):
        return False
    return any({"datatype", "shape"} & each.keys() for each in inputs)


INPUT_NAMES = ("args", "array_inputs", "text_inputs", "inputs", "text", "image", "input-0")
# Request parameters of the protocol or of its servers, which are not the model's.
PROTOCOL_PARAMETERS = {
    "content_type",
    "headers",
    "binary_data_output",
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
}
TRITON_PREFIX = "triton_"

# Older names of parameters.
PARAMETER_ALIASES = {"topk": "top_k"}


class Rows:
    """The rows of tensors; all have one length, but for those whose value holds for every row."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        parameters: Mapping[str, Any],
        model: ModelInfo,
        *,
        explains: bool,
    ) -> None:
        """Divide the tensors into inputs and parameters."""
        self._columns, self._explains = model.task.wire.input_columns, explains
        self._reads_media = model.task.wire.reads_media
        schemas = {**model.parameters, **(model.explanation if explains else {})}
        schemas |= {
            old: schemas[name] for old, name in PARAMETER_ALIASES.items() if name in schemas
        }
        self._inputs = _input_tensors(tensors, model.task.wire.input_columns, schemas)
        self.count = len(self._inputs[0])
        others = [tensor for tensor in tensors.values() if tensor not in self._inputs]
        self._shared = {key: parameters[key] for key in parameters if not _is_of_protocol(key)}
        self._own: list[Tensor] = []
        for tensor in others:
            schema = schemas[tensor.name]
            if schema.get("type") == "array" or self._is_list(tensor, schema):
                self._shared[tensor.name] = _list(tensor)
            elif len(tensor) == 1:
                self._shared[tensor.name] = tensor.element(0)
            else:
                self._own.append(tensor)
        self._check_counts()

    def _is_list(self, tensor: Tensor, schema: Mapping[str, Any]) -> bool:
        """Return whether a parameter that may be a value or a list is a list of another length."""
        takes_lists = any(each.get("type") == "array" for each in schema.get("anyOf", ()))
        return takes_lists and len(tensor) not in (1, self.count)

    def requests(self) -> list[Request | RequestError]:
        """Return the request of each row, or its error."""
        return [attempt(self._request, number) for number in range(self.count)]

    def _request(self, number: int) -> Request:
        own = {tensor.name: tensor.element(number) for tensor in self._own}
        values = [tensor.element(number, reads_media=self._reads_media) for tensor in self._inputs]
        if len(values) > 1:
            names = (tensor.name for tensor in self._inputs)
            inputs: Any = dict(zip(names, values, strict=True))
        else:
            inputs, item_parameters = read_item(
                values[0], self._columns, "element", explains=self._explains
            )
            own |= item_parameters
        return Request(inputs, {**self._shared, **own}, is_batch_item=True)

    def _check_counts(self) -> None:
        first = self._inputs[0]
        for tensor in (*self._inputs, *self._own):
            if len(tensor) != self.count:
                raise BadRequest(
                    f"{tensor.title} has {len(tensor)} elements, and {first.title} has {self.count}"
                    "; send as many."
                )


def _input_tensors(
    tensors: Mapping[str, Tensor], columns: Sequence[Columns], parameters: Mapping[str, Any]
) -> list[Tensor]:
    """Return the tensors of the inputs, in the order of the columns."""
    names = _input_names(tensors, columns, parameters)
    unknown = min(tensors.keys() - set(names) - parameters.keys(), default=None)
    if unknown is not None:
        known = [*names, *parameters]
        raise BadRequest(
            f"inputs has the unknown tensor {shorten(unknown)}; {suggest(unknown, known)}"
        )
    for name in names:
        if tensors[name].datatype != BYTES:
            raise BadRequest(
                f"{shorten(name)} has datatype {tensors[name].datatype}, and inputs are texts"
                "; send BYTES."
            )
    return [tensors[name] for name in names]


def _input_names(
    tensors: Mapping[str, Tensor], columns: Sequence[Columns], parameters: Mapping[str, Any]
) -> Sequence[str]:
    several = (names for names in columns if names not in SINGLE_VALUES)
    if matching := [names for names in several if set(names) <= tensors.keys()]:
        return max(matching, key=len)
    others = [name for name in tensors if name not in parameters]
    found = [name for name in INPUT_NAMES if name in others] or others
    is_single = not SINGLE_VALUES.keys().isdisjoint(columns)
    if len(found) == 1 and (is_single or tensors[found[0]].content_type in JSON_TEXTS):
        return found
    known = " or ".join(" and ".join(names) for names in columns)
    raise BadRequest(f"inputs has the tensors {enumerate_names(tensors)}; ask with {known}.")


def _is_of_protocol(name: str) -> bool:
    return name in PROTOCOL_PARAMETERS or name.startswith(TRITON_PREFIX)


def _list(tensor: Tensor) -> list[Any]:
    """Return the elements of a parameter that is a list; in JSON, one element is the whole list."""
    elements = [tensor.element(number) for number in range(len(tensor))]
    return elements[0] if len(elements) == 1 and isinstance(elements[0], list) else elements
