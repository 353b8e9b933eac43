"""The time limit of explanations, which end before TorchServe kills the worker."""

from __future__ import annotations

import time

from handlers.runtime.ranks import broadcast_from_rank0


class DeadlineExceeded(Exception):
    """The time limit has passed."""


class Deadline:
    """A time limit that starts when the object is created.

    Args:
        seconds: the time limit.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Check that time is left.

        Raises:
            DeadlineExceeded: the time limit has passed.
        """
        if broadcast_from_rank0(time.monotonic() > self._end):
            raise DeadlineExceeded
