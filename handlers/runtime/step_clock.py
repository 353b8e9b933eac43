"""When the parts of streams come: a model sends those of all texts at the end of each step."""

from __future__ import annotations

import math
import time

# Parts that come within this time, in seconds, are those of one step.
SAME_STEP = 0.01
# After so many seconds without a part, the streams before have ended.
PAUSE = 1.0
# The share of a new interval in the mean.
WEIGHT = 0.125


class StepClock:
    """Estimates when the next parts come, from the mean interval of those before."""

    def __init__(self) -> None:
        self._last, self._interval = 0.0, math.inf

    def tick(self) -> None:
        """Note that a part came."""
        now = time.monotonic()
        elapsed = now - self._last
        if elapsed < SAME_STEP:
            return
        self._last = now
        if elapsed > PAUSE:
            self._interval = math.inf
        elif math.isinf(self._interval):
            self._interval = elapsed
        else:
            self._interval += (elapsed - self._interval) * WEIGHT

    def seconds_to_next(self) -> float:
        """Return the seconds until the next parts: negative if they are late, or infinite."""
        return self._last + self._interval - time.monotonic()
