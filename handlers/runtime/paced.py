"""Calls that are not made too often, whoever asks for them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable


class Paced:
    """Calls a function for one thread at a time, and at most so often.

    Args:
        function: the function.
        most: how many calls there may be within some seconds.
        seconds: these seconds.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        function: Callable[[], None],
        most: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._function, self._seconds, self._clock = function, seconds, clock
        self._running = threading.Lock()
        self._calls = deque[float](maxlen=most)

    def __call__(self) -> None:
        """Call the function; nothing where it is running, or was called too often."""
        if not self._running.acquire(blocking=False):
            return
        try:
            is_full = len(self._calls) == self._calls.maxlen
            if is_full and self._clock() - self._calls[0] < self._seconds:
                return
            self._calls.append(self._clock())
            self._function()
        finally:
            self._running.release()
