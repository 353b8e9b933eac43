"""Time limits of predictions and explanations, which end before TorchServe kills the worker."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from handlers.errors import OutOfTime
from handlers.runtime.ranks import broadcast_from_rank0

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class DeadlineExceeded(Exception):
    """The time limit has passed."""


class Deadline:
    """A time limit that starts when the object is created.

    Args:
        seconds: the time limit; by default there is none.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time limit has passed; the same in every process of a worker."""
        if math.isinf(self.seconds):
            return False
        return bool(broadcast_from_rank0(time.monotonic() > self._end))

    def check(self) -> None:
        """Check that time is left.

        Raises:
            DeadlineExceeded: the time limit has passed.
        """
        if self.passed:
            raise DeadlineExceeded


NO_DEADLINE = Deadline()


def before(
    deadline: Deadline, function: Callable[[Argument], Result]
) -> Callable[[Argument], Result]:
    """Return a function that raises :class:`OutOfTime` once the deadline has passed."""

    def call_in_time(argument: Argument) -> Result:
        if deadline.passed:
            raise OutOfTime
        return function(argument)

    return call_in_time
