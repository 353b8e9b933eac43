"""Streamed responses: parts leave while others are computed, with `continuousBatching`.

TorchServe passes all requests that are not finished in each call of the handler, and waits for one
message. The message has a part for each request that something is ready of, and none for the
others. Source: `ContinuousBatching.java` and `RestJob.java` of TorchServe 0.12.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from ..config.model_config import ModelConfig
from ..dispatcher import Dispatcher
from ..engine import BaseEngine
from ..errors import RequestError, classify
from ..http.request import HttpRequest, is_grpc
from ..http.response import HttpResponse, error_response, has_failed
from ..process.deadline import Deadline
from ..process.resources import FreedMemory
from ..process.threads import NoThread, start_thread
from ..telemetry.metrics import Meter, MetricsReporter
from ..telemetry.tracing import TracedMeter, Tracer
from .worker import (
    Headers,
    Watchdog,
    Worker,
    end_worker,
    headers_of,
    log_failure,
    require_single_worker,
    set_response,
)

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


# New requests wait until a call returns, and each call passes all requests again. A call waits as
# long as passing takes fifty times, and a short time where a client is likely to send its next one.
CALL_SECONDS = 0.02
SECONDS_PER_REQUEST = 0.0025
SECONDS_PER_BYTE = 1e-8
MAX_CALL_SECONDS = 1.0


class StreamedResponses:
    """Starts requests, and passes on what is ready of their responses.

    Args:
        freed_memory: is returned to the system after a request that was refused.
        watchdog: ends the worker where a prediction hangs. An explanation may wait for others.
        tracer: makes spans of requests; None where traces are off.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        engine: BaseEngine,
        reporter: MetricsReporter,
        freed_memory: FreedMemory,
        watchdog: Watchdog,
        tracer: Tracer | None = None,
    ) -> None:
        self._dispatcher, self._engine, self._reporter = dispatcher, engine, reporter
        self._freed_memory, self._watchdog, self._tracer = freed_memory, watchdog, tracer
        self._requests = RequestThreads[HttpResponse](engine.limits.predict)
        self._explaining = threading.Lock()
        self._finished = SimpleQueue[tuple[Meter, float]]()
        # The requests with a part of their response sent, and whether only its end is left.
        self._sent: dict[str, bool] = {}
        self._has_ended_one = False

    def handle(self, rows: Any, context: Any) -> list[bytes]:
        """Start the new requests, and return what is ready of all of them."""
        ids: dict[int, str] = dict(context.request_ids)
        headers = headers_of(context)
        self._forget_all_but(set(ids.values()))
        for index, number in ids.items():
            if number not in self._requests and not self._sent.get(number):
                self._start(number, rows[index], headers[index], context.metrics)
        ready = self._requests.take(self._seconds_to_wait(rows))
        self._has_ended_one = any(each.is_finished for each in ready.values())
        context.stopping_criteria = {}
        bodies = [
            self._part(context, index, HttpRequest(row, headers[index]), ready.get(ids[index]))
            for index, row in enumerate(rows)
        ]
        self._report(context)
        return bodies

    @property
    def is_busy(self) -> bool:
        """Whether a request is not finished, or a part of a response was not sent."""
        return self._requests.is_busy or any(self._sent.values())

    def _start(self, number: str, row: Any, headers: Headers, metrics: Any) -> None:
        """Start a new request, or end one that was left out when no call came for long."""
        if number in self._sent:
            self._sent[number] = True
        elif not self._engine.device_failed:  # The worker ends when no request is left.
            self._requests.start(number, partial(self._answer, number, row, headers))
            self._reporter.watch(metrics, self._load)

    def _forget_all_but(self, numbers: set[str]) -> None:
        self._requests.keep(numbers)
        self._sent = {number: each for number, each in self._sent.items() if number in numbers}

    def _answer(
        self, number: str, row: Any, headers: Headers, send: Send[HttpResponse], deadline: Deadline
    ) -> HttpResponse:
        """Return the response to a request, in the thread of the request."""
        start, meter = time.perf_counter(), Meter() if self._tracer is None else TracedMeter()
        part = None if is_grpc(headers) else send
        http_request = self._dispatcher.http_request(row, headers, part)
        # One explanation at a time, so that they leave time to texts.
        explains = http_request.explains
        with self._explaining if explains else self._watchdog.watch(deadline):
            (response,) = self._dispatcher.dispatch([http_request], meter, deadline)
            if has_failed(response):
                self._engine.check_health()
        if self._tracer and isinstance(meter, TracedMeter):
            self._tracer.record([headers], [response.status], meter)
        log_failure(number, response.status, headers)
        self._finished.put((meter, time.perf_counter() - start))
        return response

    def _part(
        self,
        context: Any,
        index: int,
        http_request: HttpRequest,
        ready: Ready[HttpResponse] | None,
    ) -> bytes:
        """Return the next part of a response, and say in the context whether others follow."""
        number = context.request_ids[index]
        if self._sent.get(number):
            self._sent[number] = False
            return _set_part(context, index, HttpResponse(b""), ends=True)
        if ready is None:
            del context.request_ids[index]
            return b""
        response = _merged(ready)
        if number in self._sent or _is_one_message(http_request):
            self._sent[number] = False
            return _set_part(context, index, response, ends=ready.is_finished)
        self._sent[number] = ready.is_finished
        if response.status >= 400:
            # TorchServe closes the connection after the head of such a response, so this is all.
            return _set_part(context, index, response, ends=None)
        # TorchServe goes on with a request until its last part, which cannot be the first one.
        return _set_part(context, index, response, ends=False)

    def _seconds_to_wait(self, rows: Any) -> float:
        if any(self._sent.values()):
            return 0.0
        if self._has_ended_one:
            return CALL_SECONDS
        bodies = (value for row in rows for value in row.values())
        size = sum(len(body) for body in bodies if isinstance(body, (bytes, bytearray, str)))
        passing = len(rows) * SECONDS_PER_REQUEST + size * SECONDS_PER_BYTE
        return min(max(CALL_SECONDS, passing), MAX_CALL_SECONDS)

    def _load(self) -> Mapping[str, float]:
        return self._engine.load_metrics

    def _report(self, context: Any) -> None:
        while True:
            try:
                meter, seconds = self._finished.get_nowait()
            except Empty:
                return
            self._reporter.report(context.metrics, meter, seconds, self._load)
            if meter.counts["errors"]:
                self._freed_memory.release()


class StreamingWorker(Worker):
    """A worker that answers each request by itself."""

    def __init__(self, context: Any, config: ModelConfig) -> None:
        # A worker of TorchServe 0.12 that has no requests holds the lock of the model's queue until
        # the next one arrives. Another one needs this lock between two parts of its responses.
        # Source: `Model.pollInferJob` and `ContinuousBatching.pollBatch`.
        require_single_worker(
            "continuousBatching",
            "responses of one worker would wait in TorchServe while another one has no requests",
        )
        super().__init__(context, config)
        self._responses = StreamedResponses(
            self.dispatcher,
            self.engine,
            self.reporter,
            self.freed_memory,
            self.watchdog,
            self.tracer,
        )

    def handle(self, rows: Any, context: Any) -> list[Any]:
        if self.engine.device_failed and not self._responses.is_busy:
            end_worker()
        return self._responses.handle(rows, context)

    def end_hanging(self, context: Any) -> None:
        end_worker()


def _is_one_message(http_request: HttpRequest) -> bool:
    """Return whether a response is one message, which is its last: not over HTTP."""
    return http_request.by_grpc or http_request.describes


def _merged(ready: Ready[HttpResponse]) -> HttpResponse:
    """Return all parts as one, with the head of the first; an error stands for the rest."""
    parts = list(ready.parts)
    if ready.error is not None:
        error = ready.error if isinstance(ready.error, RequestError) else classify(ready.error)
        parts.append(error_response(error))
    elif ready.last is not None:
        parts.append(ready.last)
    return replace(parts[0], body=b"".join(part.body for part in parts))


def _set_part(context: Any, index: int, response: HttpResponse, *, ends: bool | None) -> bytes:
    """Set the head of a part in the context, and return its body.

    Args:
        ends: whether it is the last one; None for a whole response.
    """
    set_response(context, index, response)
    context.stopping_criteria[index] = lambda _body: ends
    return response.body
