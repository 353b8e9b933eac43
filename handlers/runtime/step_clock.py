"""When the parts of streams come: a model sends those of all texts at the end of each step."""

from __future__ import annotations

import math
import time
from collections import deque

# Parts that come within this time, in seconds, are those of one step.
SAME_STEP = 0.01
# After so many seconds without a part, the streams before have ended.
PAUSE = 1.0
# The intervals of which the lower quartile is the estimate: steps that read prompts are longer.
INTERVALS = 16


class StepClock:
    """Estimates when the next parts come, from the intervals between those before."""

    def __init__(self) -> None:
        self._last = 0.0
        self._intervals = deque[float](maxlen=INTERVALS)

    def tick(self) -> None:
        """Note that a part came."""
        now = time.monotonic()
        elapsed = now - self._last
        if elapsed < SAME_STEP:
            return
        self._last = now
        if elapsed > PAUSE:
            self._intervals.clear()
        else:
            self._intervals.append(elapsed)

    def seconds_to_next(self) -> float:
        """Return the seconds until the next parts: negative if they are late, or infinite."""
        elapsed = time.monotonic() - self._last
        if not self._intervals or elapsed > PAUSE:
            return math.inf
        return sorted(self._intervals)[len(self._intervals) // 4] - elapsed
