"""The engine of a model with its own inference code, whose calls have a time limit each."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from ..batch import NotExplained
from ..config.custom_file import ENDPOINT_HANDLER, defines_inference_code, find
from ..config.handler_section import CUSTOM_MODE
from ..config.model_config import ModelConfig
from ..engine import BaseEngine, Engine, Outcome
from ..errors import (
    DeadlineExceeded,
    DeviceFailed,
    EngineFailed,
    RequestError,
    Unprocessable,
    WrongConfig,
    attempt,
)
from ..process.deadline import NO_DEADLINE, Deadline, TimeLimits
from ..process.threads import start_thread
from ..protocols import hugging_face
from ..tasks.custom_code import run
from ..telemetry.metrics import Meter
from ..types.model_info import (
    IMAGE_COLUMN,
    TEXT_COLUMN,
    InferenceCodeInfo,
    Limits,
    ModelInfo,
    ModelOutputs,
    TaskDescription,
    Wire,
)
from ..types.request import Request
from .code import CodeContext, EndpointHandler, InferenceCode, InferenceScript

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
