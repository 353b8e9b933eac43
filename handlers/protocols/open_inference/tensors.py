"""The body of an inference request: its JSON, and its tensors in JSON or as bytes after the JSON.

https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, SkipValidation, model_validator

from ...config.messages import quote, shorten
from ...errors import BadRequest, RequestTooLarge, Unprocessable
from ...http.decoding import decode_text, is_utf8, parse_json
from ...http.request import HttpRequest
from ...types.parameters import MAX_KEYS, MAX_VALUES, check_size, json_type, parse_body

BYTES: Literal["BYTES"] = "BYTES"
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
# Responses and errors repeat it.
MAX_ID = 200

# Content types of tensors of JSON texts in MLServer's Hugging Face runtime.
JSON_TEXTS = ("hg_json", "hg_jsonlist")
BASE64 = "base64"


class StrictModel(BaseModel):
    """Base of the body and its parts, which refuses unknown keys."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, protected_namespaces=(), allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _has_few_keys(cls, values: Any) -> Any:
        if isinstance(values, dict) and len(values) > MAX_KEYS:
            raise ValueError(f"has {len(values):,} keys; send at most {MAX_KEYS}")
        return values


class RequestInput(StrictModel):
    """One tensor in the JSON; without `data` its elements are bytes after the JSON."""

    name: str
    datatype: Datatype
    shape: Annotated[list[NonNegativeInt], Field(fail_fast=True)]
    parameters: dict[str, Any] | None = None
    data: SkipValidation[list[Any] | None] = None

    @property
    def title(self) -> str:
        """Its name in an error."""
        return shorten(self.name)

    @property
    def binary_size(self) -> Any:
        """The number of its bytes after the JSON; None where its elements are in the JSON."""
        return (self.parameters or {}).get("binary_data_size")


class RequestOutput(StrictModel):
    """A requested tensor."""

    name: str
    parameters: dict[str, Any] | None = None


class InferenceRequest(StrictModel):
    """An inference request; the path selects the model, not the name here."""

    id: Annotated[str, Field(max_length=MAX_ID)] | None = None
    model_name: str | None = None
    model_version: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: Annotated[list[RequestInput], Field(fail_fast=True)] = Field(min_length=1)
    outputs: Annotated[list[RequestOutput], Field(fail_fast=True)] | None = None

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
                raise BadRequest(f"There is no output {shorten(output.name)}; there is {OUTPUT}.")
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
    """Return the JSON of a body, and the bytes after it."""
    length, raw = http_request.header(LENGTH_OF_JSON), http_request.raw
    if not length or not isinstance(raw, (bytes, bytearray)):
        return http_request.content, b""
    if not re.fullmatch("[0-9]{1,12}", length) or int(length) > len(raw):
        raise BadRequest(f"{LENGTH_OF_JSON} is {length[:20]}, and the body has {len(raw)} bytes.")
    end = int(length)
    content = parse_json(decode_text(raw[:end]), max_values=http_request.limits.max_values)
    return content, bytes(raw[end:])


@dataclass(frozen=True)
class Tensor:
    """A tensor in the order of its rows.

    Attributes:
        elements: its elements; elements of BYTES are texts, or bytes that are not decoded yet.
        content_type: the format of its texts: JSON, base64, or plain text.
    """

    name: str
    datatype: str
    elements: Sequence[Any]
    content_type: str = ""

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def title(self) -> str:
        """Its name in an error."""
        return shorten(self.name)

    def element(self, number: int, *, reads_media: bool = False) -> Any:
        """Return one element: a number, a text, or the value of a text in JSON.

        Args:
            reads_media: whether it may be the bytes of a file.

        Raises:
            BadRequest: the text cannot be decoded.
        """
        element = self.elements[number]
        if self.datatype != BYTES:
            return element
        if self.content_type == BASE64:
            element = _from_base64(element, self.title)
        if reads_media and isinstance(element, bytes) and not is_utf8(element):
            return element
        text = decode_text(element, self.title)
        return parse_json(text, self.title) if self.content_type in JSON_TEXTS else text


def read_tensors(
    body: InferenceRequest, data: bytes, max_rows: int, *, in_base64: bool = False
) -> dict[str, Tensor]:
    """Return a body's tensors by name.

    Args:
        data: the bytes after it.
        max_rows: the maximum number of elements of a tensor that has one for each row.
        in_base64: whether BYTES are in base64, as TorchServe passes them from gRPC.

    Raises:
        BadRequest: elements are missing, too many, or of another datatype; or a name comes twice.
        RequestTooLarge: a tensor has more elements than a list of rows or of parameters may have.
    """
    check_size(body.parameters or {})
    default = BASE64 if in_base64 else (body.parameters or {}).get("content_type")
    tensors: dict[str, Tensor] = {}
    for given in body.inputs:
        if given.name in tensors:
            raise BadRequest(f"inputs has two tensors {given.title}; send one.")
        count = _count_of(given, max(max_rows, MAX_VALUES))
        elements, data = _read_elements(given, data, count)
        if len(elements) != count:
            found = len(elements) if len(elements) < count else "more"
            raise BadRequest(
                f"{given.title} has shape {quote(given.shape)}, which is {count} elements"
                f", and its data has {found}."
            )
        content_type = str((given.parameters or {}).get("content_type", default or ""))
        tensors[given.name] = Tensor(given.name, given.datatype, elements, content_type)
    if data:
        raise BadRequest(
            f"The body has {len(data)} bytes more than binary_data_size of its inputs says."
        )
    return tensors


def _count_of(given: RequestInput, limit: int) -> int:
    """Return the number of elements that a shape has."""
    shape = quote(given.shape)
    if len(given.shape) > MAX_DIMENSIONS or sum(size != 1 for size in given.shape) > 1:
        raise BadRequest(f"{given.title} has shape {shape}; send one element a row, [n] or [n, 1].")
    if (count := prod(given.shape)) > limit:
        raise RequestTooLarge(
            f"{given.title} has shape {shape}, and a tensor has at most {limit:,} elements here"
            "; send them in parts."
        )
    return count


def _read_elements(given: RequestInput, data: bytes, count: int) -> tuple[list[Any], bytes]:
    """Return the elements, at most one more than their number should be, and the other bytes."""
    size = given.binary_size
    if given.data is not None or size is None:
        return _elements_in_json(given, count), data
    if type(size) is not int or not 0 <= size <= len(data):
        raise BadRequest(
            f"{given.title} has binary_data_size {quote(size)}, and {len(data)} bytes are left."
        )
    return unpack_elements(data[:size], given.datatype, given.title, count), data[size:]


def _elements_in_json(given: RequestInput, count: int) -> list[Any]:
    if not isinstance(given.data, list):
        raise BadRequest(
            f"{given.title} must have a list as data, and has {json_type(given.data)}."
        )
    elements = list(islice(_flatten(given.data, given.title, MAX_DIMENSIONS), count + 1))
    check_elements(elements, given.datatype, given.title)
    return elements


def _flatten(data: list[Any], name: str, depth: int) -> Iterator[Any]:
    """Return the elements of nested lists, in order."""
    for each in data:
        if not isinstance(each, list):
            yield each
        elif depth:
            yield from _flatten(each, name, depth - 1)
        else:
            raise BadRequest(
                f"{name} has data that is nested too deep; send it flat, or as its shape is."
            )


def _from_base64(text: str | bytes, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BadRequest(f"{name} must be in base64, and is not.") from None


def check_elements(values: Sequence[Any], datatype: Datatype, name: str) -> None:
    """Refuse JSON values that are not of a datatype, with the number of the first one."""
    for number, value in enumerate(values):
        if not _fits(value, datatype):
            raise BadRequest(f"{name} has datatype {datatype}, and its element {number} is not.")


def unpack_elements(data: bytes, datatype: Datatype, name: str, count: int) -> list[Any]:
    """Return the elements in bytes; elements of BYTES are bytes themselves.

    Of more elements than their number should be, one more is returned.

    Raises:
        BadRequest: they end in the middle of an element.
    """
    if datatype == BYTES:
        return list(islice(_split(data, name), count + 1))
    size = struct.calcsize(CODES[datatype])
    if len(data) % size:
        raise BadRequest(
            f"{name} has {len(data)} bytes, and an element of {datatype} has {size} of them."
        )
    elements = islice(struct.iter_unpack(f"<{CODES[datatype]}", data), count + 1)
    return [value for (value,) in elements]


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
