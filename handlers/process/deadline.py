"""Time limits of predictions and explanations, which end before TorchServe kills the worker."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from torch import distributed

from ..errors import DeadlineExceeded
from .ranks import agree

# How long a thread waits for others before it looks whether to go on waiting, in seconds.
PATIENCE = 0.25

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TimeLimits:
    """The time limits of one batch in seconds.

    Attributes:
        shared_predict: for the predictions of a batch that has explanations, too.
        hang: from which a batch counts as hanging, so that the worker has to end.
    """

    predict: float = math.inf
    shared_predict: float = math.inf
    explain: float = 60.0
    hang: float = math.inf


class Deadline:
    """A time limit that starts when the object is created.

    Args:
        source: another one, which ends this one where it is ended.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        source: Deadline | None = None,
    ) -> None:
        self.seconds = seconds
        self._clock, self._source = clock, source
        self._is_expired = False
        self._started = clock()
        self._end = self._started + seconds

    def restart(self) -> None:
        """Start the time limit again, unless it was ended."""
        self._started = self._clock()
        self._end = self._started + self.seconds

    def expire(self) -> None:
        """End the time limit now, and those that were derived from it; it does not start again.

        Another thread may start it again at the same time: what it writes has no effect.
        """
        self._is_expired = True

    def shorten(self, seconds: float) -> None:
        """Set a shorter time limit from the same start; no limit stays none."""
        if math.isinf(self.seconds):
            return
        self._end += seconds - self.seconds
        self.seconds = seconds

    def extended(self, seconds: float) -> Deadline:
        """Return a time limit that ends some seconds after this one."""
        later = Deadline(self.seconds + seconds, self._clock, self)
        later._end = self._end + seconds
        return later

    def at_most(self, seconds: float) -> Deadline:
        """Return a time limit that ends in some seconds, or with this one if that is earlier."""
        earlier = Deadline(seconds, self._clock, self)
        earlier._end = min(self._end, earlier._end)
        return earlier

    def share(self, parts: float) -> Deadline:
        """Return a time limit that ends after an equal part of the time that is left."""
        return Deadline(max(0.0, self._end - self._clock()) / parts, self._clock, self)

    @property
    def age(self) -> float:
        """Seconds since the time limit started, as this process counts them."""
        return self._clock() - self._started

    @property
    def passed(self) -> bool:
        """Whether the time limit has passed, as this process counts the time.

        Where processes share a model, what is run next depends on :func:`ranks.agree`.
        """
        return self.overrun > 0

    def passed_together(self) -> bool:
        """Return whether the time limit has passed for rank 0.

        Every process has to call it equally often.
        """
        has_passed = self.overrun > 0
        is_shared = distributed.is_available() and distributed.is_initialized()
        return agree(has_passed) if is_shared else has_passed

    @property
    def overrun(self) -> float:
        """Seconds since the time limit passed, negative before; infinite where it was ended."""
        deadline: Deadline | None = self
        while deadline is not None:
            if deadline._is_expired:
                return math.inf
            deadline = deadline._source
        return self._clock() - self._end

    def check_together(self) -> None:
        """Check that time is left before the model runs; every process calls it equally often.

        Raises:
            DeadlineExceeded: the time limit has passed.
        """
        if self.passed_together():
            raise DeadlineExceeded


NO_DEADLINE = Deadline()


def before(
    deadline: Deadline, function: Callable[[Argument], Result]
) -> Callable[[Argument], Result]:
    """Return a function that raises :class:`DeadlineExceeded` once the deadline has passed.

    Every process has to call it equally often.
    """

    def call_in_time(argument: Argument) -> Result:
        if deadline.passed_together():
            raise DeadlineExceeded
        return function(argument)

    return call_in_time
