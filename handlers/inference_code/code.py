"""The two kinds of inference code, and the bodies of their results.

Hugging Face's `handler.py`: https://huggingface.co/docs/inference-endpoints/guides/custom_handler
SageMaker's `inference.py`: https://sagemaker.readthedocs.io/en/stable/frameworks/huggingface/sagemaker.huggingface.html
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..config.custom_file import ENDPOINT_HANDLER, FUNCTIONS, KEY
from ..errors import BadRequest, WrongConfig
from ..http.request import preferred
from ..http.response import JSON, encode_json
from ..media.images import IMAGE_TYPES
from ..tasks.custom_code import FAILURES, CustomCodeFailed, call, completed, load_error
from ..types.parameters import json_type
from ..types.request import RequestBody, ResponseBody

BYTES = "application/octet-stream"
CONTENT_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}(; ?charset=[\w-]{1,20})?", re.ASCII)
CALL = f"{ENDPOINT_HANDLER}.__call__"
# One of them is in each body; Vertex AI sends instances.
INPUT_KEYS = frozenset({"inputs", "instances"})
# `transform_fn` takes their place.
STEPS = ("input_fn", "predict_fn", "output_fn")
LoadModel = Callable[[], Callable[..., Any]]


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


class EndpointHandler(InferenceCode):
    """Hugging Face's class, an instance of which is called with each body.

    Raises:
        WrongConfig: its constructor fails.
    """

    kind = ENDPOINT_HANDLER

    def __init__(self, module: ModuleType, path: Path, directory: Path) -> None:
        self.file = path.name
        try:
            self._handler = module.EndpointHandler(str(directory))
        except FAILURES as error:
            raise load_error(error, path, f"whose {ENDPOINT_HANDLER} fails") from error

    def respond(self, body: RequestBody) -> ResponseBody:
        data = body.decode()
        if INPUT_KEYS.isdisjoint(data):
            raise BadRequest("The body has no inputs; send the input under that key.")
        return self.encoded(call(self._handler, CALL, self.file, data), body.accept, CALL)


@dataclass(frozen=True)
class CodeContext:
    """What a function that takes `context` gets.

    Attributes:
        system_properties: `model_dir`, and `gpu_id`, which is None on a CPU.
    """

    system_properties: Mapping[str, Any]


class InferenceScript(InferenceCode):
    """SageMaker's functions, which load a model, and read, predict and write.

    Args:
        load_model: returns the model of `mode`, for a file without `model_fn`.

    Raises:
        WrongConfig: they exclude each other, or `model_fn` fails.
    """

    kind = "inference.py"

    def __init__(
        self,
        module: ModuleType,
        path: Path,
        directory: Path,
        context: CodeContext,
        load_model: LoadModel,
    ) -> None:
        self.file, self._path, self._context = path.name, path, context
        self._functions = {name: getattr(module, name, None) for name in FUNCTIONS}
        self._check()
        self._model = self._load(directory, load_model)

    def respond(self, body: RequestBody) -> ResponseBody:
        if self._defines("transform_fn"):
            content, kind = body.content, body.content_type
            result = self._call("transform_fn", self._model, content, kind, _accepted(body))
            return self._written(result, body.accept, "transform_fn")
        if self._defines("input_fn"):
            data = self._call("input_fn", body.content, body.content_type)
        else:
            data = body.decode()
        if self._defines("predict_fn"):
            prediction = self._call("predict_fn", data, self._model)
        else:
            prediction = call(predict, "the model", self.file, data, self._model)
        if self._defines("output_fn"):
            result = self._call("output_fn", prediction, _accepted(body))
            return self._written(result, body.accept, "output_fn")
        return self.encoded(prediction, body.accept, "predict_fn")

    def _defines(self, name: str) -> bool:
        return self._functions[name] is not None

    def _check(self) -> None:
        for name, function in self._functions.items():
            if function is not None and not callable(function):
                raise WrongConfig(
                    KEY, f"is {self.file}, whose {name} is no function", f"define {name} with def"
                )
        others = [name for name in STEPS if self._defines(name)]
        if self._defines("transform_fn") and others:
            raise WrongConfig(
                KEY,
                f"is {self.file}, which has transform_fn and {others[0]}",
                f"transform_fn takes the place of {', '.join(STEPS)}; keep one way",
            )

    def _load(self, directory: Path, load_model: LoadModel) -> Any:
        if not self._defines("model_fn"):
            return load_model()
        try:
            return completed(self._with_context("model_fn", str(directory))())
        except FAILURES as error:
            raise load_error(error, self._path, "whose model_fn fails") from error

    def _call(self, name: str, *arguments: Any) -> Any:
        return call(self._with_context(name, *arguments), name, self.file)

    def _with_context(self, name: str, *arguments: Any) -> Callable[[], Any]:
        """Return a function with its arguments, and with the context if it takes one more."""
        function: Any = self._functions[name]
        if _takes(function, len(arguments) + 1):
            return partial(function, *arguments, self._context)
        return partial(function, *arguments)

    def _written(self, result: Any, accept: str, name: str) -> ResponseBody:
        """Return a body that a function has written: alone, or with its content type."""
        kind = concrete_type(accept) or JSON
        if isinstance(result, tuple) and len(result) == 2:
            result, kind = result
            if not CONTENT_TYPE.fullmatch(str(kind)):
                raise self.failed(name, "a second value that is no content type")
        if isinstance(result, str):
            result = result.encode("utf-8", "backslashreplace")
        if isinstance(result, (bytes, bytearray)):
            return ResponseBody(bytes(result), str(kind))
        return self.encoded(result, accept, name)


def predict(data: Any, model: Callable[..., Any]) -> Any:
    """Return what a model returns for decoded data: all of an object without inputs is one.

    Raises:
        BadRequest: its parameters are no object.
    """
    if not isinstance(data, dict):
        return model(data)
    parameters = data.pop("parameters", None) or {}
    if not isinstance(parameters, dict):
        raise BadRequest(f"parameters must be an object, and is {json_type(parameters)}.")
    return model(data.get("inputs", data), **parameters)


def _accepted(body: RequestBody) -> str:
    return concrete_type(body.accept) or JSON


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function takes a number of positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


def _image(image: Image.Image, content_type: str) -> ResponseBody:
    stream = BytesIO()
    image.convert("RGB").save(stream, IMAGE_TYPES[content_type])
    return ResponseBody(stream.getvalue(), content_type)


def _plain(value: Any) -> Any:
    """Return an array, a tensor or a number of NumPy as Python's own types."""
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        return value.tolist()
    raise TypeError(type(value).__name__)
