"""Tensors that clients send: their elements, out of JSON or bytes, checked against the shape."""

from __future__ import annotations

import base64
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from handlers.errors import BadRequest
from handlers.http.decoding import json_of, text_of
from handlers.protocols.open_inference.body import Body, Input
from handlers.protocols.open_inference.datatypes import BYTES, check_elements, elements_of
from handlers.schemas.text_checks import json_type

# Sizes that a shape may have: a longer one, or data nested deeper, only costs time.
MOST_SIZES = 4

# Content types that MLServer's Hugging Face runtime gives to tensors of JSON texts.
JSON_TEXTS = ("hg_json", "hg_jsonlist")
BASE64 = "base64"


@dataclass(frozen=True)
class Tensor:
    """A tensor in the order of its rows.

    Attributes:
        name: what the client calls it.
        datatype: one of the protocol's.
        elements: its elements; those of BYTES are texts, or bytes that are still to be read.
        content_type: what its texts are: JSON, base64, or just texts.
    """

    name: str
    datatype: str
    elements: Sequence[Any]
    content_type: str = ""

    def __len__(self) -> int:
        return len(self.elements)

    def element(self, number: int) -> Any:
        """Return one element: a number, a text, or the value that a text of JSON has.

        Raises:
            BadRequest: it is no such text.
        """
        found = self.elements[number]
        if self.datatype != BYTES:
            return found
        if self.content_type == BASE64:
            found = _from_base64(found, self.name)
        text = text_of(found, self.name)
        return json_of(text, self.name) if self.content_type in JSON_TEXTS else text


def tensors_of(body: Body, behind: bytes, *, in_base64: bool = False) -> dict[str, Tensor]:
    """Return a body's tensors by name.

    Args:
        body: what the JSON says.
        behind: the bytes behind it.
        in_base64: whether BYTES are written in base64, as TorchServe writes those of gRPC.

    Raises:
        BadRequest: elements are missing, too many, or of another datatype; or a name comes twice.
    """
    usual = BASE64 if in_base64 else (body.parameters or {}).get("content_type")
    tensors: dict[str, Tensor] = {}
    for given in body.inputs:
        if given.name in tensors:
            raise BadRequest(f"inputs has two tensors {given.name}; send one.")
        elements, behind = _elements(given, behind)
        _check_count(given, elements)
        content_type = str((given.parameters or {}).get("content_type", usual or ""))
        tensors[given.name] = Tensor(given.name, given.datatype, elements, content_type)
    if behind:
        raise BadRequest(
            f"The body has {len(behind)} bytes more than binary_data_size of its inputs says."
        )
    return tensors


def _elements(given: Input, behind: bytes) -> tuple[list[Any], bytes]:
    size = given.binary_size
    if given.data is not None or size is None:
        return _written(given), behind
    if type(size) is not int or not 0 <= size <= len(behind):
        raise BadRequest(
            f"{given.name} has binary_data_size {size}, and {len(behind)} bytes are left."
        )
    return elements_of(behind[:size], given.datatype, given.name), behind[size:]


def _written(given: Input) -> list[Any]:
    if not isinstance(given.data, list):
        raise BadRequest(f"{given.name} must have a list as data, and has {json_type(given.data)}.")
    elements = _flat(given.data, given.name)
    check_elements(elements, given.datatype, given.name)
    return elements


def _flat(data: list[Any], name: str) -> list[Any]:
    """Return what nested lists hold, in order."""
    for _ in range(MOST_SIZES):
        data = [inner for each in data for inner in (each if isinstance(each, list) else [each])]
    if any(isinstance(each, list) for each in data):
        raise BadRequest(
            f"{name} has data that is nested too deep; send it flat, or as its shape is."
        )
    return data


def _check_count(given: Input, elements: Sequence[Any]) -> None:
    shape = reprlib.repr(given.shape)
    flat = len(given.shape) <= MOST_SIZES and sum(size != 1 for size in given.shape) <= 1
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
