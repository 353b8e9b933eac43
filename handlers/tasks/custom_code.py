"""A user's own code around a model: the Python file that `handler.custom` names.

The file is part of the archive, as the handler is, and runs when the model is loaded. It has one or
more of

    def preprocess(request): ...    # returns the request, or other inputs in place of its inputs
    def postprocess(result): ...    # returns the result of one request, ready for JSON
    class Task(...): ...            # derived from the task of the mode

An error of a function concerns its request alone.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ..compat.device_errors import is_device_failure, is_out_of_memory
from ..compat.imports import run_file
from ..config.custom_file import KEY
from ..errors import (
    BadRequest,
    RequestError,
    Unprocessable,
    WrongConfig,
    classify,
    log_bug,
    summarize,
)
from ..process.threads import EventLoopThread
from ..types.request import Request
from .base import BaseTask

MODULE = "custom_code_of_model"
NAMES = ("preprocess", "postprocess", "Task")
MAX_REASON = 300
# The form of a vector that is a list of numbers.
FLOAT = "float"

# What code can raise; `asyncio` has its own error of a task that is cancelled.
FAILURES = (Exception, SystemExit, asyncio.CancelledError)
# Functions with `async def` run here.
EVENT_LOOP = EventLoopThread()

Kind = type[BaseTask[Any, Any]]


class CustomCodeFailed(RequestError):
    """A function of the model's own code failed; the message contains no part of the request."""

    status = 500
    kind = "InternalServerException"

    def __init__(self, function: str, file: str, cause: str) -> None:
        super().__init__(
            f"{function} of {file}, the model's own code, failed with {cause}; the worker's log has"
            " the trace."
        )


@dataclass(frozen=True)
class CustomCode:
    """The functions and the task of a file.

    Attributes:
        file: the name of the file.
        preprocess: changes a request before the task reads it.
        postprocess: changes a result.
        task: the task in place of the mode's.
    """

    file: str
    preprocess: Callable[[Request], Any] | None = None
    postprocess: Callable[[Any], Any] | None = None
    task: Kind | None = None

    @classmethod
    def load(cls, path: Path) -> CustomCode:
        """Run a file and find its functions.

        Raises:
            WrongConfig: it cannot be run, or has none of them.
        """
        module = run(path)
        found = {name: getattr(module, name, None) for name in NAMES}
        if not any(found.values()):
            raise WrongConfig(
                KEY,
                f"is {path.name}, which has no preprocess, postprocess or Task",
                "define one of them in the file",
            )
        for name in ("preprocess", "postprocess"):
            if found[name] is not None and not callable(found[name]):
                raise WrongConfig(
                    KEY, f"is {path.name}, whose {name} is no function", f"define {name} with def"
                )
        task = found["Task"]
        if task is not None and not (isinstance(task, type) and issubclass(task, BaseTask)):
            raise WrongConfig(
                KEY,
                f"is {path.name}, whose Task is not derived from a task",
                "derive it from the Task of a module of handlers.tasks",
            )
        return cls(path.name, found["preprocess"], found["postprocess"], task)

    def around(self, kind: Kind) -> Kind:
        """Return a task that calls the functions of this file before and after another."""
        kind = self.task or kind

        def parse(task: Any, request: Request) -> Any:
            return kind.parse(task, self.prepared(request))

        def decode(task: Any, given: Any, rows: Sequence[Any], outputs: Sequence[Any]) -> Any:
            parameters = getattr(given, "parameters", None)
            if parameters is None or getattr(parameters, "encoding_format", FLOAT) == FLOAT:
                return self.finished(kind.decode(task, given, rows, outputs))
            # Clients of OpenAI ask for the bytes of a vector; `postprocess` changes its numbers.
            floats = parameters.model_copy(update={"encoding_format": FLOAT})
            plain = replace(given, parameters=floats)
            return self._encoded(parameters, kind.decode(task, plain, rows, outputs))

        methods: dict[str, Any] = {"parse": parse} if self.preprocess or self.postprocess else {}
        methods |= {"decode": decode} if self.postprocess else {}
        return type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__})

    def _encoded(self, parameters: Any, result: Any) -> Any:
        """Return a vector, changed as a list of numbers, in base64."""
        changed = self.finished(result)
        try:
            return parameters.encoded(changed)
        except (TypeError, ValueError, OverflowError) as error:
            cause = f"{type(error).__name__}: no vector of {parameters.precision}"
            raise CustomCodeFailed("postprocess", self.file, cause) from None

    def prepared(self, request: Request) -> Request:
        """Return a request as `preprocess` changes it.

        Raises:
            RequestError: `preprocess` failed, or the result would be sent before it is complete.
        """
        if self.postprocess and request.stream is not None:
            raise Unprocessable(
                f"The results of this model are changed by {self.file} when they are complete, so"
                " they cannot be streamed; leave stream out."
            )
        if self.preprocess is None:
            return request
        changed = call(self.preprocess, "preprocess", self.file, request)
        return changed if isinstance(changed, Request) else replace(request, inputs=changed)

    def finished(self, result: Any) -> Any:
        """Return a result as `postprocess` changes it.

        Raises:
            RequestError: `postprocess` failed, or returned what JSON does not have.
        """
        if self.postprocess is None:
            return result
        changed = call(self.postprocess, "postprocess", self.file, result)
        try:
            json.dumps(changed, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            kind = type(error).__name__
            raise CustomCodeFailed("postprocess", self.file, f"{kind}: no JSON") from None
        return changed


def run(path: Path) -> ModuleType:
    """Run a file as a module of its own.

    Raises:
        WrongConfig: it raises an error.
    """
    try:
        return run_file(path, MODULE)
    except FAILURES as error:
        raise load_error(error, path, "which fails") from error


def load_error(error: BaseException, path: Path, problem: str) -> WrongConfig:
    """Return the error of a file whose code failed when the model was loaded."""
    remedy = "correct the file"
    if isinstance(error, ModuleNotFoundError):
        remedy = (
            f"install {error.name} in the environment of the workers; the requirements.txt of a"
            " model is not installed by itself"
        )
    reason = f"{type(error).__name__}: {summarize(error, MAX_REASON)}"
    return WrongConfig(KEY, f"is {path.name}, {problem}{_line_in(error, path)} ({reason})", remedy)


def call(function: Callable[..., Any], name: str, file: str, *arguments: Any) -> Any:
    """Call a function of a model's own code.

    Raises:
        BadRequest: it raised a `ValueError`, whose message is for the client.
        RequestError: it failed.
    """
    try:
        return completed(function(*arguments))
    except RequestError:
        raise
    except ValueError as error:
        raise BadRequest(summarize(error, MAX_REASON)) from None
    except FAILURES as error:  # It concerns its request alone.
        if is_out_of_memory(error) or is_device_failure(error):
            raise classify(error) from None
        log_bug(error)
        raise CustomCodeFailed(name, file, type(error).__name__) from None


def completed(result: Any) -> Any:
    """Return a result, which a function with `async def` computes now."""
    return EVENT_LOOP.result_of(result) if inspect.isawaitable(result) else result


def _line_in(error: BaseException, path: Path) -> str:
    """Return where in a file an error was raised, as words; "" where it was not read so far."""
    line, trace = None, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" in line {line}" if line else ""
