"""A clock that a test moves."""

from __future__ import annotations


class Clock:
    """Returns the time that `now` is set to, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
