"""The protocol's datatypes: what is one, and how its elements lie in bytes.

https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from handlers.errors import BadRequest

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
# How Python's struct calls each; all are little-endian.
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


def check_elements(values: Sequence[Any], datatype: Datatype, name: str) -> None:
    """Check that JSON values are of a datatype.

    Raises:
        BadRequest: one is not; the text says which.
    """
    for number, value in enumerate(values):
        if not _fits(value, datatype):
            raise BadRequest(f"{name} has datatype {datatype}, and its element {number} is not.")


def elements_of(data: bytes, datatype: Datatype, name: str) -> list[Any]:
    """Return the elements that bytes hold; those of BYTES are bytes.

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


def join(texts: Iterable[bytes]) -> bytes:
    """Return the elements of a BYTES tensor end to end, each behind its length."""
    return b"".join(LENGTH.pack(len(text)) + text for text in texts)


def _split(data: bytes, name: str) -> Iterable[bytes]:
    start = 0
    while start < len(data):
        text = start + LENGTH.size
        end = text + LENGTH.unpack_from(data, start)[0] if text <= len(data) else text
        if end > len(data):
            raise BadRequest(
                f"{name} has {len(data)} bytes, and its element at byte {start} ends at {end}"
                "; send each behind its length in 4 bytes, little-endian."
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
