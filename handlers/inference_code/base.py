"""The interface of a model's own inference code, and the bodies of its results."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import Image
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..http.request import preferred
from ..http.response import JSON, encode_json
from ..media.images import IMAGE_TYPES
from ..tasks.custom_code import CustomCodeFailed
from ..types.body import RequestBody, ResponseBody

BYTES = "application/octet-stream"
CONTENT_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}(; ?charset=[\w-]{1,20})?", re.ASCII)


class InferenceCode(ABC):
    """The code of a model, loaded.

    Attributes:
        kind: what its file defines, as `describe` names it.
        file: the name of its file.
    """

    kind: str
    file: str

    @abstractmethod
    def respond(self, body: RequestBody) -> ResponseBody:
        """Answer one request.

        Raises:
            RequestError: the code refuses it, or fails.
        """

    def encoded(self, result: Any, accept: str, name: str) -> ResponseBody:
        """Return the body of a result: JSON, or the file of an image or of bytes.

        Args:
            name: the function that has returned it.

        Raises:
            CustomCodeFailed: it is neither of them.
        """
        if isinstance(result, Image.Image):
            return _image(result, preferred(accept, IMAGE_TYPES) or next(iter(IMAGE_TYPES)))
        if isinstance(result, (bytes, bytearray)):
            return ResponseBody(bytes(result), concrete_type(accept) or BYTES)
        try:
            return ResponseBody(encode_json(to_jsonable_python(result, fallback=_plain)), JSON)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise self.failed(name, f"{type(error).__name__}: no JSON") from None

    def failed(self, name: str, cause: str) -> CustomCodeFailed:
        """Return the error of a function that has failed."""
        return CustomCodeFailed(name, self.file, cause)


def concrete_type(accept: str) -> str:
    """Return the first content type of an Accept header; empty where it leaves the type open."""
    kind = accept.partition(",")[0].partition(";")[0].strip()
    return kind if CONTENT_TYPE.fullmatch(kind) else ""


def _image(image: Image.Image, content_type: str) -> ResponseBody:
    stream = BytesIO()
    image.convert("RGB").save(stream, IMAGE_TYPES[content_type])
    return ResponseBody(stream.getvalue(), content_type)


def _plain(value: Any) -> Any:
    """Return an array, a tensor or a number of NumPy as Python's own types."""
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        return value.tolist()
    raise TypeError(type(value).__name__)
