"""A model's own inference code, as Hugging Face's and SageMaker's containers run it.

`handler.py` has a class:

    class EndpointHandler:
        def __init__(self, path=""): ...
        def __call__(self, data): ...        # data["inputs"], and "parameters" where they are sent

`inference.py` has one or more functions, each with `context` as a further argument if it takes one:

    def model_fn(model_dir): ...             # by default the model of `mode`
    def input_fn(body, content_type): ...    # by default an object with inputs
    def predict_fn(data, model): ...         # by default model(inputs, **parameters)
    def output_fn(prediction, accept): ...   # by default JSON
    def transform_fn(model, body, content_type, accept): ...     # in the place of the last three

The calls have a time limit each.

Hugging Face's `handler.py`: https://huggingface.co/docs/inference-endpoints/guides/custom_handler
SageMaker's `inference.py`: https://sagemaker.readthedocs.io/en/stable/frameworks/huggingface/sagemaker.huggingface.html
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from pydantic_core import PydanticSerializationError, to_jsonable_python

from .batch import NotExplained
from .config.custom_file import ENDPOINT_HANDLER, FUNCTIONS, KEY, defines_inference_code, find
from .config.handler_section import CUSTOM_MODE
from .config.model_config import ModelConfig
from .engine import BaseEngine, Engine, Outcome
from .errors import (
    BadRequest,
    DeadlineExceeded,
    DeviceFailed,
    EngineFailed,
    RequestError,
    Unprocessable,
    WrongConfig,
    attempt,
)
from .http.request import preferred
from .http.response import JSON, encode_json
from .media.images import IMAGE_TYPES
from .process.deadline import NO_DEADLINE, Deadline, TimeLimits
from .process.threads import start_thread
from .protocols import hugging_face
from .tasks.custom_code import FAILURES, CustomCodeFailed, call, completed, load_error, run
from .telemetry.metrics import Meter
from .types.model_info import (
    IMAGE_COLUMN,
    TEXT_COLUMN,
    InferenceCodeInfo,
    Limits,
    ModelInfo,
    ModelOutputs,
    TaskDescription,
    Wire,
)
from .types.parameters import json_type
from .types.request import Request, RequestBody, ResponseBody

Result = TypeVar("Result")

DESCRIPTION = TaskDescription(
    Wire(inputs=Any, results=Any, example={}, input_columns=(TEXT_COLUMN, IMAGE_COLUMN)),
    ModelOutputs(()),
)


class CallTimedOut(DeadlineExceeded):
    """A call did not end in time. It goes on, so the thread takes no others."""

    def __init__(self, file: str, seconds: float) -> None:
        super().__init__(
            f"{file}, the model's own code, did not answer within {seconds:.3g} s"
            " (predict_timeout), and its worker starts again; send less, or raise the limit."
        )


class CallThread:
    """A thread that calls functions one after the other, with as many threads of torch."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._calls = SimpleQueue[tuple[Callable[[], object], Future[object]]]()
        start_thread("inference code", self._run, torch.get_num_threads())

    def call(self, function: Callable[[], Result], deadline: Deadline) -> Result:
        """Return what a function returns.

        Raises:
            CallTimedOut: it does not return before the deadline.
        """
        future = Future[Result]()
        self._calls.put((function, future))  # type: ignore[arg-type]
        remaining = -deadline.overrun
        try:
            return future.result(None if math.isinf(remaining) else max(0.0, remaining))
        except TimeoutError:
            if future.done():  # The function itself has raised it.
                raise
            raise CallTimedOut(self._file, deadline.seconds) from None

    def _run(self, threads: int) -> None:
        torch.set_num_threads(threads)
        while True:
            function, future = self._calls.get()
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)


class InferenceCodeEngine(BaseEngine):
    """Passes the body of each request to a model's own code, one after the other.

    A call that does not end in time ends the worker, as it cannot be stopped.
    """

    def __init__(self, code: InferenceCode, config: ModelConfig) -> None:
        self.model, self.settings = code, config.handler
        self.limits = TimeLimits(
            config.predict_seconds, config.predict_seconds, 0.0, config.hang_seconds
        )
        self._thread = CallThread(code.file)

    @classmethod
    def load(
        cls,
        directory: Path,
        config: ModelConfig,
        device: torch.device | str = "cpu",
        sums: Mapping[str, str] | None = None,
    ) -> InferenceCodeEngine:
        """Run the file of `handler.custom`, and load the model with it.

        The file may import modules in its folder, and in the folder of the model.

        Args:
            sums: the verified sum of each file of an archive, where the code uses the model of
                `mode`.

        Raises:
            ConfigError: the code fails, or the model of `mode` does not load.
        """
        if config.continuousBatching or config.torchrun:
            raise WrongConfig(
                "continuousBatching" if config.continuousBatching else "torchrun",
                f"is set, and {config.handler.custom} answers whole requests",
                "leave it out",
            )
        path, device = find(directory, config.handler.custom or ""), torch.device(device)
        sys.path[:0] = [str(path.parent), str(directory)]
        module = run(path)
        if hasattr(module, ENDPOINT_HANDLER):
            return cls(EndpointHandler(module, path, directory), config)
        context = CodeContext({"model_dir": str(directory), "gpu_id": device.index})
        load_model = partial(_load_model, directory, config, device, sums)
        return cls(InferenceScript(module, path, directory, context, load_model), config)

    @property
    def failure(self) -> DeviceFailed | None:
        """Why no request is answered any more."""
        return EngineFailed() if self.device_failed else None

    def require_health(self) -> None:
        """Check nothing: no request is known that the code answers."""

    def check_health(self) -> None:
        """Check nothing, for the same reason."""

    def describe(self, name: str = "model", version: str = "1.0") -> ModelInfo:
        """Return the description of this model."""
        settings = self.settings
        return ModelInfo(
            name=name,
            version=version,
            mode=settings.mode,
            save_mode=settings.save_mode,
            dtype=settings.dtype,
            labels=(),
            limits=Limits(None, settings.max_rows, settings.max_characters, truncation=False),
            inputs={},
            results={},
            parameters={},
            explanation={},
            task=DESCRIPTION,
            settings=settings,
            inference_code=InferenceCodeInfo(self.model.file, self.model.kind),
        )

    def predict(
        self,
        requests: Sequence[Request],
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
    ) -> list[Outcome]:
        """Return the body of each response, or its error; inputs are whole bodies.

        Each request has an equal share of the time that is left.
        """
        meter = meter or Meter()
        meter.count(rows=len(requests))
        with meter.stage("forward"):
            return [
                attempt(self._respond, request, deadline.share(len(requests) - number))
                for number, request in enumerate(requests)
            ]

    def explain(self, requests: Sequence[Request], *_: Any, **__: Any) -> list[Outcome]:
        """Refuse each request."""
        return [NotExplained() for _ in requests]

    def _attempt_each(self, function: Any, requests: Sequence[Request], *_: Any) -> list[Any]:
        return [Unprocessable("This model answers by its own code.") for _ in requests]

    def _respond(self, request: Request, deadline: Deadline) -> Any:
        if self.device_failed:
            raise EngineFailed
        try:
            return self._thread.call(partial(self.model.respond, request.inputs), deadline)
        except (CallTimedOut, DeviceFailed):
            self.device_failed = True
            raise


def has_inference_code(directory: Path, config: ModelConfig) -> bool:
    """Return whether a model answers by its own code.

    Raises:
        WrongConfig: the file of `handler.custom` is missing, or has no model for `mode: custom`.
    """
    if config.handler.custom is None:
        return False
    path = find(directory, config.handler.custom)
    if defines_inference_code(path):
        return True
    if config.handler.mode == CUSTOM_MODE:
        raise WrongConfig(
            "handler.mode",
            f"is custom, and {path.name} has neither {ENDPOINT_HANDLER} nor model_fn",
            "define one of them, or set the mode of the model",
        )
    return False


def _load_model(
    directory: Path,
    config: ModelConfig,
    device: torch.device,
    sums: Mapping[str, str] | None,
) -> Callable[..., Any]:
    if config.handler.mode == CUSTOM_MODE:
        raise WrongConfig(
            "handler.mode",
            f"is custom, and {config.handler.custom} has no model_fn",
            "define model_fn, or set the mode of the model",
        )
    handler = config.handler.model_copy(update={"custom": None})
    plain = config.model_copy(update={"handler": handler})
    return ModelFunction(Engine.load(directory, plain, device, sums))


class ModelFunction:
    """The model of a mode as a function of inputs and parameters, as transformers' pipelines are.

    Attributes:
        engine: its engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._protocol = hugging_face.Protocol(engine.describe())

    def __call__(self, inputs: Any, **parameters: Any) -> Any:
        """Return the result of inputs, or a list for a list of inputs.

        Raises:
            RequestError: the first error of them.
        """
        requests = self._protocol.requests(inputs, parameters)
        outcomes = self.engine.predict(requests)
        for outcome in outcomes:
            if isinstance(outcome, RequestError):
                raise outcome
        return outcomes if requests[0].is_batch_item else outcomes[0]


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
