"""A clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Returns the time that `now` is set to, in seconds, and counts how often."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now

    def looked_at(self, times: int) -> Callable[[], bool]:
        """Return a condition: whether it was looked at so many times more."""
        before = self.looks
        return lambda: self.looks >= before + times
