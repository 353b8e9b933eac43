"""Requests and answers of the Open Inference Protocol, between gRPC's messages and HTTP bodies.

Over HTTP, tensors of BYTES lie as bytes behind the JSON, so that they need not be UTF-8:
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
# Where a message has the elements of each datatype.
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
KINDS = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


def to_http_body(request: Any) -> tuple[bytes, int]:
    """Return a ModelInferRequest as an HTTP body, and the length of its JSON."""
    raw = request.raw_input_contents
    written = [_input(*each) for each in zip_longest(request.inputs, raw[: len(request.inputs)])]
    head = {
        "parameters": {**_parameters(request.parameters), "binary_data_output": True},
        "inputs": [given for given, _ in written],
    }
    if request.id:
        head["id"] = request.id
    if request.outputs:
        head["outputs"] = [
            {"name": each.name, "parameters": {**_parameters(each.parameters), "binary_data": True}}
            for each in request.outputs
        ]
    start = json.dumps(head).encode()
    # More raw contents than inputs are sent as well: what is too much will be refused.
    return b"".join([start, *(data for _, data in written), *raw[len(written) :]]), len(start)


def to_infer_response(body: bytes, length: int, *, raw: bool) -> Any:
    """Return a ModelInferResponse.

    Args:
        body: the HTTP body of an answer, whose tensors lie as bytes behind the JSON.
        length: of its JSON.
        raw: whether the client sent raw contents, and so reads them.
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
            setattr(output.parameters[name], KINDS[type(value)], value)
        if raw:
            answer.raw_output_contents.append(body[start:end])
        else:
            output.contents.bytes_contents.extend(_split(body[start:end]))
        start = end
    return answer


def _input(given: Any, raw: bytes | None) -> tuple[dict[str, Any], bytes]:
    """Return a tensor's part of the JSON, and its bytes behind it."""
    told = {
        "name": given.name,
        "datatype": given.datatype,
        "shape": list(given.shape),
        "parameters": _parameters(given.parameters),
    }
    field = FIELDS.get(given.datatype, FIELDS["BYTES"])  # of another, the model tells what is wrong
    elements = getattr(given.contents, field)
    if raw is None and field != FIELDS["BYTES"]:
        return {**told, "data": list(elements)}, b""
    data = _join(elements) if raw is None else raw
    told["parameters"]["binary_data_size"] = len(data)
    return told, data


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
