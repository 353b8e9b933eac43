"""Something that is loaded when it is first needed, once for all who need it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from handlers.errors import OutOfTime
from handlers.runtime.deadline import NO_DEADLINE, Deadline

Loaded_co = TypeVar("Loaded_co", covariant=True)
# How long a caller waits before it looks at its deadline, in seconds.
PATIENCE = 0.1


class LazyLoad(Generic[Loaded_co]):
    """Loads something at the first call, in a thread of its own, and keeps it.

    After an error the next call loads again.

    Args:
        load: loads it.
    """

    def __init__(self, load: Callable[[], Loaded_co]) -> None:
        self._load, self._lock = load, threading.Lock()
        self._future: Future[Loaded_co] | None = None

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
        """
        future = self._started()
        while not future.done():
            if deadline.passed:
                raise OutOfTime
            wait([future], PATIENCE)
        return future.result()

    def _started(self) -> Future[Loaded_co]:
        with self._lock:
            future = self._future
            if future is None or (future.done() and future.exception()):
                future = self._future = Future()
                threading.Thread(target=self._run, args=(future,), name="load", daemon=True).start()
            return future

    def _run(self, future: Future[Loaded_co]) -> None:
        try:
            future.set_result(self._load())
        except BaseException as error:  # noqa: BLE001 - the callers raise it
            future.set_exception(error)
