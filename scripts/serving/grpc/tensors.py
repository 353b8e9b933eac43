"""Convert requests and responses of the Open Inference Protocol between gRPC and HTTP.

Over HTTP, BYTES tensors follow the JSON as binary data, so that they need not be UTF-8:
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from tritonclient.grpc import service_pb2 as messages

LENGTH = struct.Struct("<I")
# The field of a message that contains the elements of each datatype.
FIELDS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
PARAMETER_FIELDS = {
    bool: "bool_param",
    int: "int64_param",
    float: "double_param",
    str: "string_param",
}


def to_http_body(request: Any) -> tuple[bytes, int]:
    """Convert a ModelInferRequest to an HTTP body; return it with the length of its JSON part."""
    raw = request.raw_input_contents
    converted = [_input(*each) for each in zip_longest(request.inputs, raw[: len(request.inputs)])]
    head = {
        "parameters": {**_parameters(request.parameters), "binary_data_output": True},
        "inputs": [tensor for tensor, _ in converted],
    }
    if request.id:
        head["id"] = request.id
    if request.outputs:
        head["outputs"] = [
            {"name": each.name, "parameters": {**_parameters(each.parameters), "binary_data": True}}
            for each in request.outputs
        ]
    start = json.dumps(head).encode()
    # Surplus raw contents are sent as well, so that the model rejects the request.
    return b"".join([start, *(data for _, data in converted), *raw[len(converted) :]]), len(start)


def to_infer_response(body: bytes, length: int, *, raw: bool) -> Any:
    """Convert an HTTP response to a ModelInferResponse.

    Args:
        body: the JSON, followed by the binary data of the tensors.
        length: the length of the JSON part.
        raw: whether to return raw contents, as in the request.
    """
    head, start = json.loads(body[:length]), length
    answer = messages.ModelInferResponse(
        model_name=head["model_name"], model_version=head["model_version"], id=head.get("id", "")
    )
    for each in head["outputs"]:
        parameters = dict(each["parameters"])
        end = start + parameters.pop("binary_data_size")
        output = answer.outputs.add(
            name=each["name"], datatype=each["datatype"], shape=each["shape"]
        )
        for name, value in parameters.items():
            setattr(output.parameters[name], PARAMETER_FIELDS[type(value)], value)
        if raw:
            answer.raw_output_contents.append(body[start:end])
        else:
            output.contents.bytes_contents.extend(_split(body[start:end]))
        start = end
    return answer


def _input(given: Any, raw: bytes | None) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of a tensor, and the binary data that follows."""
    tensor = {
        "name": given.name,
        "datatype": given.datatype,
        "shape": list(given.shape),
        "parameters": _parameters(given.parameters),
    }
    field = FIELDS.get(given.datatype, FIELDS["BYTES"])  # rejected by the model
    elements = getattr(given.contents, field)
    if raw is None and field != FIELDS["BYTES"]:
        return {**tensor, "data": list(elements)}, b""
    data = _join(elements) if raw is None else raw
    tensor["parameters"]["binary_data_size"] = len(data)
    return tensor, data


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    chosen = ((name, value, value.WhichOneof("parameter_choice")) for name, value in given.items())
    return {name: getattr(value, kind) for name, value, kind in chosen if kind}


def _join(elements: Iterable[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(each)) + each for each in elements)


def _split(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        begin = start + LENGTH.size
        start = begin + LENGTH.unpack_from(data, start)[0]
        yield data[begin:start]
