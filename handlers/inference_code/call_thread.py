"""Calls of a model's own code, each with a time limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

import torch

from ..errors import DeadlineExceeded
from ..process.deadline import Deadline
from ..process.threads import start_thread

Result = TypeVar("Result")


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
