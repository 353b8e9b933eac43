"""Streamed responses: parts leave while others are computed, with `continuousBatching`.

TorchServe passes all requests that are not finished in each call of the handler, and waits for one
message. The message has a part for each request that something is ready of, and none for the
others. Source: `ContinuousBatching.java` and `RestJob.java` of TorchServe 0.12.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from ..config.model_config import ModelConfig
from ..dispatcher import Dispatcher
from ..engine import BaseEngine
from ..errors import RequestError, classify
from ..http.request import HttpRequest, is_grpc
from ..http.response import HttpResponse, error_response, has_failed
from ..process.deadline import Deadline
from ..process.resources import FreedMemory
from ..process.watchdog import Watchdog, end_worker
from ..telemetry.metrics import Meter, MetricsReporter
from ..telemetry.tracing import TracedMeter, Tracer
from .request_threads import Ready, RequestThreads, Send
from .worker import Headers, Worker, headers_of, log_failure, require_single_worker, set_response

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
        # Requests with a part of their response sent, and with all of it sent but for its end.
        self._begun: set[str] = set()
        self._complete: set[str] = set()
        self._has_ended_one = False

    def handle(self, rows: Any, context: Any) -> list[bytes]:
        """Start the new requests, and return what is ready of all of them."""
        ids: dict[int, str] = dict(context.request_ids)
        headers = headers_of(context)
        self._forget_all_but(set(ids.values()))
        for index, number in ids.items():
            if number not in self._requests and number not in self._complete:
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
        return self._requests.is_busy or bool(self._complete)

    def _start(self, number: str, row: Any, headers: Headers, metrics: Any) -> None:
        """Start a new request, or end one that was left out when no call came for long."""
        if number in self._begun:
            self._complete.add(number)
        elif not self._engine.device_failed:  # The worker ends when no request is left.
            self._requests.start(number, partial(self._answer, number, row, headers))
            self._reporter.watch(metrics, self._load)

    def _forget_all_but(self, numbers: set[str]) -> None:
        self._requests.keep(numbers)
        self._begun &= numbers
        self._complete &= numbers

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
        if number in self._complete:
            self._complete.discard(number)
            return _set_part(context, index, HttpResponse(b""), ends=True)
        if ready is None:
            del context.request_ids[index]
            return b""
        response = _merged(ready)
        if number in self._begun or _is_one_message(http_request):
            self._begun.add(number)
            return _set_part(context, index, response, ends=ready.is_finished)
        if ready.is_finished:
            self._complete.add(number)
        if response.status >= 400:
            # TorchServe closes the connection after the head of such a response, so this is all.
            return _set_part(context, index, response, ends=None)
        # TorchServe goes on with a request until its last part, which cannot be the first one.
        self._begun.add(number)
        return _set_part(context, index, response, ends=False)

    def _seconds_to_wait(self, rows: Any) -> float:
        if self._complete:
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
