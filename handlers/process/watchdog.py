"""Ends a worker that hangs or whose accelerator failed; TorchServe starts a new one."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from .deadline import Deadline
from .threads import NoThread, start_thread

logger = logging.getLogger(__name__)

# How often the thread looks at the batches that run, in seconds.
INTERVAL = 0.5
# The innermost calls of a thread that are logged.
LOGGED_CALLS = 30
# Seconds in which TorchServe passes on the responses that it was sent, and reports the
# last metrics.
LAST_RESPONSES_SECONDS = 1.0


class Watchdog:
    """Ends a batch that hangs before TorchServe kills the worker without a trace in the log.

    It watches batches in a thread, which starts with the first batch.

    A thread that hangs outside of Python and keeps its lock stops this one, too; TorchServe's
    `responseTimeout` remains.

    Args:
        seconds: how long a batch may take since its deadline started.
        on_hang: called once, in that thread.
        interval: how often it looks at them, in seconds.
    """

    def __init__(
        self, seconds: float, on_hang: Callable[[], None], interval: float = INTERVAL
    ) -> None:
        self._seconds, self._on_hang, self._interval = seconds, on_hang, interval
        self._lock = threading.Lock()
        self._watched: dict[int, Deadline] = {}
        self._has_work = threading.Event()
        self._is_started = False

    @contextmanager
    def watch(self, deadline: Deadline) -> Iterator[None]:
        """Watch the block; its time starts again when its deadline does."""
        key = id(deadline)
        with self._lock:
            self._watched[key] = deadline
            if not self._is_started:
                self._start()
        self._has_work.set()
        try:
            yield
        finally:
            with self._lock:
                del self._watched[key]

    def _start(self) -> None:
        # Where the process cannot have a thread now, the next batch tries again.
        with suppress(NoThread):
            start_thread("watchdog", self._run)
            self._is_started = True

    def _run(self) -> None:
        while not self._is_hanging():
            self._has_work.wait()
            time.sleep(self._interval)

    def _is_hanging(self) -> bool:
        """Return whether a batch hangs; one that ends meanwhile waits for what is done about it."""
        with self._lock:
            if not self._watched:
                self._has_work.clear()
            if not any(each.age > self._seconds for each in self._watched.values()):
                return False
            logger.error(
                "A batch takes longer than %g s; its worker ends. %s", self._seconds, call_stacks()
            )
            self._on_hang()
            return True


def call_stacks() -> str:
    """Return where each thread of this process is, without values: file, line and function."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = (
        f"{names.get(number, number)} at {_calls(frame)}"
        for number, frame in sys._current_frames().items()
        if number != threading.get_ident()
    )
    return "; ".join(stacks)


def _calls(frame: FrameType | None) -> str:
    calls: list[str] = []
    while frame and len(calls) < LOGGED_CALLS:
        code = frame.f_code
        calls.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(calls))


def end_worker() -> NoReturn:
    """End this process, without a clean-up that would use the accelerator and could hang.

    TorchServe must be waiting for a response: a worker that ends between two batches takes the
    requests with it that TorchServe is collecting for the next one, and their clients wait forever.
    """
    logger.error(
        "The accelerator or the model failed; this worker ends, and TorchServe starts a new one"
    )
    time.sleep(LAST_RESPONSES_SECONDS)
    sys.stdout.flush()
    os._exit(1)
