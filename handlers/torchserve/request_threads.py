"""Requests that are answered at the same time, each in its own thread."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..process.deadline import Deadline
from ..process.threads import NoThread, start_thread

# Parts that come within this time, in seconds, belong to one step.
SAME_STEP = 0.01
# The streams have ended when no part came for this time, in seconds.
PAUSE = 1.0
# The intervals of which the lower quartile is the estimate: steps that read prompts are longer.
INTERVALS = 16


class StepClock:
    """Estimates when the next parts of streams come, from the intervals between earlier parts.

    A model sends the parts of all sequences at the end of each step.
    """

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


Part = TypeVar("Part")
Send = Callable[[Part], None]
Answer = Callable[[Send[Part], Deadline], Part]

# Parts of several requests come at nearly the same time, after a step of the model: in seconds.
COLLECTING_SECONDS = 0.002
# How long a thread that adds parts waits after the first one of a request, which is sent meanwhile,
# before parts of other requests are made.
YIELDING_SECONDS = 0.0005
# How long before the next parts a call returns: TorchServe passes a new request to the handler, and
# the handler to the model, before the model begins with its next step.
LEAD_SECONDS = 0.008
# How long a call waits for parts that are late, as in a step that reads prompts: this share of its
# time, which is longer where it passes more requests, and at least LATE_SECONDS.
LATE_SHARE = 0.25
LATE_SECONDS = 0.02
# TorchServe asks at once for more while one client waits; without any, it does not ask at all.
SILENCE_SECONDS = 5.0


@dataclass
class Ready(Generic[Part]):
    """What is ready of the response to a request.

    Attributes:
        parts: parts to send before the last one.
        last: the last part, or the whole response; None if it is not ready.
        error: the exception that an answer ended with.
        is_first: whether it has the first part of a stream.
    """

    parts: list[Part] = field(default_factory=list)
    last: Part | None = None
    error: BaseException | None = None
    is_first: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether nothing follows."""
        return self.last is not None or self.error is not None


class RequestThreads(Generic[Part]):
    """Answers requests side by side.

    Args:
        seconds: the time limit of each request, which starts again with each part that is sent.
        silence: how long TorchServe may not ask for responses before all requests end, in seconds.
    """

    def __init__(self, seconds: float, silence: float = SILENCE_SECONDS) -> None:
        self._seconds, self._silence = seconds, silence
        self._changed = threading.Condition()
        self._deadlines: dict[str, Deadline] = {}
        self._ready: dict[str, Ready[Part]] = {}
        self._begun: set[str] = set()
        self._steps = StepClock()
        self._yielded_at = 0.0
        self._last_call = time.monotonic()
        start_thread("silence", self._watch)

    def __contains__(self, number: str) -> bool:
        return number in self._deadlines

    @property
    def is_busy(self) -> bool:
        """Whether a request is not finished, or something is ready of its response."""
        return bool(self._deadlines)

    def start(self, number: str, answer: Answer[Part]) -> None:
        """Answer a request.

        Args:
            answer: returns the last part of the response; it may send others before, and ends soon
                after its deadline has passed.
        """
        deadline = Deadline(self._seconds)
        with self._changed:
            self._deadlines[number] = deadline
        try:
            start_thread("request", self._answer, number, answer, deadline)
        except NoThread as error:
            self._fail(number, deadline, error)

    def keep(self, numbers: Collection[str]) -> None:
        """End all other requests, whose clients have gone."""
        with self._changed:
            self._last_call = time.monotonic()
            for number in self._deadlines.keys() - numbers:
                self._deadlines.pop(number).expire()
                self._ready.pop(number, None)
            self._begun &= self._deadlines.keys()

    def take(self, seconds: float) -> dict[str, Ready[Part]]:
        """Return what is ready of each request, after waiting at most so long for something.

        Where parts come at each step of a model, it returns shortly before the next ones, too, and
        again if they are late, so that a request which came meanwhile takes part in the step after.
        """
        early = self._steps.seconds_to_next() - LEAD_SECONDS
        late = max(LATE_SECONDS, LATE_SHARE * seconds)
        seconds = min(seconds, early if early > 0 else late)
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._ready), seconds):
                return {}
            has_begun = any(each.is_first for each in self._ready.values())
        if not has_begun:
            time.sleep(COLLECTING_SECONDS)
        with self._changed:
            ready, self._ready = self._ready, {}
            for number, each in ready.items():
                if each.is_finished:
                    del self._deadlines[number]
        return ready

    def _answer(self, number: str, answer: Answer[Part], deadline: Deadline) -> None:
        def send(part: Part) -> None:
            deadline.restart()
            self._add(number, deadline, lambda ready: ready.parts.append(part), is_part=True)

        try:
            last = answer(send, deadline)
        except BaseException as error:  # noqa: BLE001 - the client gets a response in any case
            self._fail(number, deadline, error)
        else:
            self._add(number, deadline, lambda ready: setattr(ready, "last", last))

    def _fail(self, number: str, deadline: Deadline, error: BaseException) -> None:
        self._add(number, deadline, lambda ready: setattr(ready, "error", error))

    def _add(
        self,
        number: str,
        deadline: Deadline,
        change: Callable[[Ready[Part]], None],
        *,
        is_part: bool = False,
    ) -> None:
        """Change what is ready of a request; nothing where its client has gone."""
        with self._changed:
            if self._deadlines.get(number) is not deadline:
                return
            is_first = is_part and number not in self._begun
            if is_part:
                self._begun.add(number)
                self._steps.tick()
            change(self._ready.setdefault(number, Ready(is_first=is_first)))
            self._changed.notify_all()
        if is_first:
            self._yield_once_a_step()

    def _yield_once_a_step(self) -> None:
        """Let the first part of a request be sent; other requests of the step follow soon."""
        now = time.monotonic()
        if now - self._yielded_at > SAME_STEP:
            self._yielded_at = now
            time.sleep(YIELDING_SECONDS)

    def _watch(self) -> None:
        """End all requests where TorchServe has not asked for their responses for a while."""
        while True:
            time.sleep(self._silence / 5)
            if self._deadlines and time.monotonic() - self._last_call > self._silence:
                self.keep(())
