"""The assertion that one thread at a time runs a model."""

from __future__ import annotations

import threading
from types import TracebackType


class SeveralThreads(RuntimeError):
    """Two threads run a model at the same time, which changes its outputs: a bug of the caller."""

    def __init__(self, running: str) -> None:
        super().__init__(
            f"The model is run by the thread {running!r}; use one thread, or one after another."
        )


class OneThread:
    """A block that one thread at a time may be in; the same one may enter it again.

    Raises:
        SeveralThreads: another thread is in it.
    """

    def __init__(self) -> None:
        self._lock, self._name = threading.RLock(), ""

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise SeveralThreads(self._name)
        self._name = threading.current_thread().name

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._lock.release()
