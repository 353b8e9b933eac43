"""The body of an inference request: its JSON, and its tensors in JSON or as bytes after the JSON.

https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

import base64
import re
import reprlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from handlers.errors import BadRequest, Unprocessable
from handlers.http.decoding import decode_text, parse_json
from handlers.http.request import HttpRequest
from handlers.schemas.parameters import parse_body
from handlers.schemas.text_checks import json_type

BYTES = "BYTES"
Datatype = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
]
# The format characters of Python's struct module; all are little-endian.
CODES = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
LENGTH = struct.Struct("<I")
LENGTH_OF_JSON = "Inference-Header-Content-Length"
OUTPUT = "output"
# Dimensions that a shape may have: a longer one, or data nested deeper, only costs time.
MAX_DIMENSIONS = 4

# Content types of tensors of JSON texts in MLServer's Hugging Face runtime.
JSON_TEXTS = ("hg_json", "hg_jsonlist")
BASE64 = "base64"


class StrictModel(BaseModel):
    """Base of the body and its parts, which refuses unknown keys."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, protected_namespaces=(), allow_inf_nan=False
    )


class Input(StrictModel):
    """One tensor in the JSON; without `data` its elements are bytes after the JSON."""

    name: str
    datatype: Datatype
    shape: list[NonNegativeInt]
    parameters: dict[str, Any] | None = None
    data: Any = None

    @property
    def binary_size(self) -> Any:
        """The number of its bytes after the JSON; None where its elements are in the JSON."""
        return (self.parameters or {}).get("binary_data_size")


class Output(StrictModel):
    """A requested tensor."""

    name: str
    parameters: dict[str, Any] | None = None


class Body(StrictModel):
    """An inference request; the path selects the model, not the name here."""

    id: str | None = None
    model_name: str | None = None
    model_version: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: list[Input] = Field(min_length=1)
    outputs: list[Output] | None = None

    @classmethod
    def parse(cls, content: Any) -> Self:
        """Check the JSON of a body.

        Raises:
            BadRequest: with the first mistake.
            Unprocessable: it requests the classes of a tensor, an extension of Triton.
        """
        body = parse_body(cls, content)
        for output in body.outputs or ():
            if output.name != OUTPUT:
                raise BadRequest(f"There is no output {output.name}; there is {OUTPUT}.")
            if (output.parameters or {}).get("classification"):
                raise Unprocessable("output has no classification here; set the parameter top_k.")
        return body

    @property
    def returns_bytes(self) -> bool:
        """Whether the response has its tensor as bytes after the JSON."""
        default = (self.parameters or {}).get("binary_data_output", False)
        outputs = [output.parameters or {} for output in self.outputs or ()]
        return bool(outputs[0].get("binary_data", default) if outputs else default)


def split_body(http_request: HttpRequest) -> tuple[Any, bytes]:
    """Return the JSON of a body, and the bytes after it.

    Raises:
        BadRequest: it is not JSON, or shorter than its header says.
    """
    length, raw = http_request.header(LENGTH_OF_JSON), http_request.raw
    if not length or not isinstance(raw, (bytes, bytearray)):
        return http_request.content, b""
    if not re.fullmatch("[0-9]{1,12}", length) or int(length) > len(raw):
        raise BadRequest(f"{LENGTH_OF_JSON} is {length[:20]}, and the body has {len(raw)} bytes.")
    end = int(length)
    return parse_json(decode_text(raw[:end])), bytes(raw[end:])


@dataclass(frozen=True)
class Tensor:
    """A tensor in the order of its rows.

    Attributes:
        name: its name in the request.
        datatype: one of the protocol's.
        elements: its elements; those of BYTES are texts, or bytes that are not decoded yet.
        content_type: the format of its texts: JSON, base64, or plain text.
    """

    name: str
    datatype: str
    elements: Sequence[Any]
    content_type: str = ""

    def __len__(self) -> int:
        return len(self.elements)

    def element(self, number: int) -> Any:
        """Return one element: a number, a text, or the value of a text in JSON.

        Raises:
            BadRequest: the text cannot be decoded.
        """
        element = self.elements[number]
        if self.datatype != BYTES:
            return element
        if self.content_type == BASE64:
            element = _from_base64(element, self.name)
        text = decode_text(element, self.name)
        return parse_json(text, self.name) if self.content_type in JSON_TEXTS else text


def read_tensors(body: Body, data: bytes, *, in_base64: bool = False) -> dict[str, Tensor]:
    """Return a body's tensors by name.

    Args:
        body: the JSON.
        data: the bytes after it.
        in_base64: whether BYTES are in base64, as TorchServe passes those of gRPC.

    Raises:
        BadRequest: elements are missing, too many, or of another datatype; or a name comes twice.
    """
    default = BASE64 if in_base64 else (body.parameters or {}).get("content_type")
    tensors: dict[str, Tensor] = {}
    for given in body.inputs:
        if given.name in tensors:
            raise BadRequest(f"inputs has two tensors {given.name}; send one.")
        elements, data = _read_elements(given, data)
        _check_count(given, elements)
        content_type = str((given.parameters or {}).get("content_type", default or ""))
        tensors[given.name] = Tensor(given.name, given.datatype, elements, content_type)
    if data:
        raise BadRequest(
            f"The body has {len(data)} bytes more than binary_data_size of its inputs says."
        )
    return tensors


def _read_elements(given: Input, data: bytes) -> tuple[list[Any], bytes]:
    size = given.binary_size
    if given.data is not None or size is None:
        return _elements_in_json(given), data
    if type(size) is not int or not 0 <= size <= len(data):
        raise BadRequest(
            f"{given.name} has binary_data_size {size}, and {len(data)} bytes are left."
        )
    return unpack_elements(data[:size], given.datatype, given.name), data[size:]


def _elements_in_json(given: Input) -> list[Any]:
    if not isinstance(given.data, list):
        raise BadRequest(f"{given.name} must have a list as data, and has {json_type(given.data)}.")
    elements = _flatten(given.data, given.name)
    check_elements(elements, given.datatype, given.name)
    return elements


def _flatten(data: list[Any], name: str) -> list[Any]:
    """Return the elements of nested lists, in order."""
    for _ in range(MAX_DIMENSIONS):
        data = [inner for each in data for inner in (each if isinstance(each, list) else [each])]
    if any(isinstance(each, list) for each in data):
        raise BadRequest(
            f"{name} has data that is nested too deep; send it flat, or as its shape is."
        )
    return data


def _check_count(given: Input, elements: Sequence[Any]) -> None:
    shape = reprlib.repr(given.shape)
    flat = len(given.shape) <= MAX_DIMENSIONS and sum(size != 1 for size in given.shape) <= 1
    if flat and prod(given.shape) != len(elements):
        raise BadRequest(
            f"{given.name} has shape {shape}, which is {prod(given.shape)} elements"
            f", and its data has {len(elements)}."
        )
    if not flat:
        raise BadRequest(f"{given.name} has shape {shape}; send one element a row, [n] or [n, 1].")


def _from_base64(text: str | bytes, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BadRequest(f"{name} must be in base64, and is not.") from None


def check_elements(values: Sequence[Any], datatype: Datatype, name: str) -> None:
    """Check that JSON values are of a datatype.

    Raises:
        BadRequest: with the number of the first one that is not.
    """
    for number, value in enumerate(values):
        if not _fits(value, datatype):
            raise BadRequest(f"{name} has datatype {datatype}, and its element {number} is not.")


def unpack_elements(data: bytes, datatype: Datatype, name: str) -> list[Any]:
    """Return the elements in bytes; those of BYTES are bytes themselves.

    Raises:
        BadRequest: they end in the middle of an element.
    """
    if datatype == BYTES:
        return list(_split(data, name))
    size = struct.calcsize(CODES[datatype])
    if len(data) % size:
        raise BadRequest(
            f"{name} has {len(data)} bytes, and an element of {datatype} has {size} of them."
        )
    return [value for (value,) in struct.iter_unpack(f"<{CODES[datatype]}", data)]


def pack_texts(texts: Iterable[bytes]) -> bytes:
    """Return the bytes of a BYTES tensor: each element after its length."""
    return b"".join(LENGTH.pack(len(text)) + text for text in texts)


def _split(data: bytes, name: str) -> Iterable[bytes]:
    start = 0
    while start < len(data):
        text = start + LENGTH.size
        end = text + LENGTH.unpack_from(data, start)[0] if text <= len(data) else text
        if end > len(data):
            raise BadRequest(
                f"{name} has {len(data)} bytes, and its element at byte {start} ends at {end}"
                "; send each after its length in 4 bytes, little-endian."
            )
        yield data[text:end]
        start = end


def _fits(value: Any, datatype: Datatype) -> bool:
    if datatype == BYTES:
        return isinstance(value, str)
    if isinstance(value, bool) or datatype == "BOOL":
        return isinstance(value, bool) and datatype == "BOOL"
    try:
        struct.pack(CODES[datatype], value)
    except (struct.error, OverflowError):
        return False
    return True
