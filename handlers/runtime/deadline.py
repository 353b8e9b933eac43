"""A limit to how long explaining a batch may take, so that TorchServe does not end the worker."""

from __future__ import annotations

import time

from handlers.runtime.ranks import broadcast_from_rank0


class DeadlinePassed(Exception):
    """The time is over."""


class Deadline:
    """Counts from its making.

    Args:
        seconds: how long.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Raise when the time is over.

        Raises:
            DeadlinePassed: it is.
        """
        if broadcast_from_rank0(time.monotonic() > self._end):
            raise DeadlinePassed
