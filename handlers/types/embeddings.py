"""The types of the numbers of an embedding, by the names of sentence-transformers."""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import Unprocessable

# The keys of a body that choose the prompt of its texts, on all routes of embeddings.
PROMPT_KEYS = ("prompt", "prompt_name", "input_type", "task")

Vectors = npt.NDArray[np.float32]
Precision = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]


def quantized(vector: npt.NDArray[np.float32], precision: Precision) -> Any:
    """Return a vector in a type with fewer bits, little-endian.

    The integers do not depend on other vectors: the largest number of each vector becomes 127 or
    -127, which keeps cosines. `uint8` adds 128. A bit is 1 for numbers above zero; `binary`
    subtracts 128 from each eight of them.

    Raises:
        Unprocessable: a number is too large for the type.
    """
    if precision.startswith("float"):
        dtype = np.dtype(precision)
        if np.abs(vector).max() > np.finfo(dtype).max:
            raise Unprocessable(
                f"The vector of this text has numbers that are too large for {precision}; send"
                " normalize: true, or no precision."
            )
        return vector.astype(dtype.newbyteorder("<"))
    if precision.endswith("binary"):
        bits = np.packbits(vector > 0)
        return bits if precision == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)
    largest = max(float(np.abs(vector).max()), 1e-12)
    scaled = np.rint(vector * (127 / largest))
    return scaled.astype(np.int8) if precision == "int8" else (scaled + 128).astype(np.uint8)


def as_list(numbers: npt.NDArray[Any]) -> Any:
    """Return an array as lists of numbers, floats with the nine digits that tell float32 apart.

    Read as float32, they are the numbers of the array. All digits would be 50% more JSON.
    """
    if numbers.dtype.kind != "f":
        return numbers.tolist()
    exact = numbers.astype(np.float64)
    sizes = np.abs(exact)
    exponents = np.floor(np.log10(sizes, out=np.zeros_like(sizes), where=sizes > 0))
    scales = 10.0 ** (8 - exponents)
    return (np.round(exact * scales) / scales).tolist()


def in_base64(numbers: npt.NDArray[Any]) -> str:
    """Return the bytes of an array in base64."""
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def max_similarity(query: Vectors, document: Vectors) -> float:
    """Return MaxSim: the sum of each query vector's largest product with one of the document."""
    return float((query @ document.T).max(1).sum()) if len(document) else 0.0
