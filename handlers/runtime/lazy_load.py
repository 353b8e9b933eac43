"""Something that is loaded when it is first needed, once for all who need it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from handlers.errors import OutOfTime, copied
from handlers.runtime.deadline import NO_DEADLINE, Deadline
from handlers.runtime.ranks import agree
from handlers.runtime.threads import start_thread

Loaded_co = TypeVar("Loaded_co", covariant=True)
# How long a caller waits before it looks at its deadline, in seconds.
PATIENCE = 0.1
# How long an error of a load, which can take minutes, is that of every caller, in seconds.
RETRY_SECONDS = 60.0


class LazyLoad(Generic[Loaded_co]):
    """Loads something at the first call, in a thread of its own, and keeps it.

    After an error, calls have the same error for some time, and then load again.

    Args:
        load: loads it.
        clock: returns the time in seconds.
    """

    def __init__(
        self, load: Callable[[], Loaded_co], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load, self._clock, self._lock = load, clock, threading.Lock()
        self._future: Future[Loaded_co] | None = None
        self._retry_at = 0.0

    @property
    def loaded(self) -> Loaded_co | None:
        """What was loaded; None before."""
        future = self._future
        return future.result() if future and future.done() and not future.exception() else None

    def get(self, deadline: Deadline = NO_DEADLINE) -> Loaded_co:
        """Return it, loaded.

        Args:
            deadline: how long to wait; loading goes on after it.

        Raises:
            OutOfTime: the deadline has passed before.
            NoThread: the process cannot have a further thread to load it in.
        """
        future = self._started()
        while not (future.done() or deadline.passed):
            wait([future], PATIENCE)
        # Where processes share a model, the others wait on if the first has it.
        if not agree(future.done()):
            raise OutOfTime
        if error := future.exception():
            raise copied(error)
        return future.result()

    def _started(self) -> Future[Loaded_co]:
        with self._lock:
            future = self._future
            failed = future is not None and future.done() and future.exception() is not None
            if future is None or (failed and self._clock() >= self._retry_at):
                future = Future()
                start_thread("load", self._run, future)
                self._future = future
            return future

    def _run(self, future: Future[Loaded_co]) -> None:
        try:
            future.set_result(self._load())
        except BaseException as error:  # noqa: BLE001 - the callers raise it
            self._retry_at = self._clock() + RETRY_SECONDS
            future.set_exception(error)
