"""A worker of TorchServe: the loaded model of its archive, and what it needs for each batch.

A worker that hangs or whose accelerator failed ends, and TorchServe starts a new one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psutil
from ts.handler_utils.utils import send_intermediate_predict_response
from ts.metrics.metric_type_enum import MetricTypes

from ..checkpoints.placement import pick_device
from ..compat.torchserve import has_older_worker, is_connected, send_parts
from ..config.model_config import ModelConfig, serving_defaults
from ..dispatcher import Dispatcher
from ..errors import WorkerHangs, WrongConfig
from ..http.limits import server_limits
from ..http.request import HttpRequest, is_grpc
from ..http.response import JSON, HttpResponse, error_response, has_failed
from ..process.deadline import Deadline
from ..process.packages import require_package
from ..process.ranks import RequestBroadcast, SharedRequest, has_other_machines, is_rank0
from ..process.resources import FreedMemory
from ..process.threads import NoThread, ThreadShare, start_thread
from ..telemetry import tracing
from ..telemetry.metrics import Meter, MetricsReporter
from ..telemetry.tracing import TracedMeter
from ..worker_start import load_engine

logger = logging.getLogger(__name__)

# The only part of a header that is logged, and only in this form.
TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
# Says whether further parts of a response follow.
STREAM_NEXT = "ts_stream_next"
# Marks the end of a stream. gRPC's StreamPredictions requires it, otherwise the worker is killed.
# Over HTTP it would make the client hang.
END_OF_STREAM = (STREAM_NEXT, "false")
BODY = attrgetter("body")


class Worker:
    """The model of an archive in a worker of TorchServe.

    Raises:
        ConfigError: the YAML, the checkpoint or the archive is invalid.
    """

    def __init__(self, context: Any, config: ModelConfig) -> None:
        if config.handler.stored_responses and not config.torchrun:
            require_single_worker(
                "handler.stored_responses",
                "a request would go to a worker that has not the response that it goes on from",
            )
        properties, described = context.system_properties, context.manifest["model"]
        self.device = pick_device(properties)
        workers = 1 if config.continuousBatching else config.maxWorkers
        self.threads = ThreadShare(workers, config.torchrun, is_fixed=config.pt2.compile.enable)
        self.engine = load_engine(Path(properties["model_dir"]), config, self.device)
        name = str(getattr(context, "model_name", None) or described["modelName"])
        version = str(described.get("modelVersion", "1.0"))
        self.dispatcher = Dispatcher(self.engine, name, version)
        _warn_of_single_requests(config, properties.get("batch_size"))
        self.reporter = MetricsReporter(MetricTypes.GAUGE)
        self.is_rank0 = is_rank0()
        self.tracer = tracing.create(name, version) if _traces() else None
        self.freed_memory = FreedMemory()
        self.watchdog = Watchdog(self.engine.limits.hang, partial(self.end_hanging, context))
        self.broadcast = RequestBroadcast() if has_other_machines() else None
        if self.broadcast:
            self.broadcast.share(asdict(server_limits()))

    def handle(self, rows: Any, context: Any) -> list[Any]:
        """Answer a batch; status and content type are set for each row.

        Returns:
            The response body of each row.
        """
        if self.engine.device_failed:
            end_worker()
        start, meter = time.perf_counter(), Meter() if self.tracer is None else TracedMeter()
        deadline = Deadline(self.engine.limits.predict)
        with self.watchdog.watch(deadline):
            self.threads.refresh()
            headers = headers_of(context)
            results = self._handle_rows(rows, headers, context, meter, deadline)
            if self.tracer and isinstance(meter, TracedMeter):
                self.tracer.record(headers, statuses_of(context), meter)
            if meter.counts["errors"]:
                log_failures(context)
                self.freed_memory.release()
            if self.is_rank0:
                self.reporter.report(context.metrics, meter, time.perf_counter() - start)
        return results

    def _handle_rows(
        self, rows: Any, headers: list[Headers], context: Any, meter: Meter, deadline: Deadline
    ) -> list[Any]:
        envelope = None
        if passed_by_envelope(rows, headers, context):
            envelope = Envelope(rows, headers, hasattr(context, "input_names"))
        http_requests: list[HttpRequest] = []
        over_http: set[int] = set()
        items = envelope.rows() if envelope else zip(rows, headers, strict=True)
        for index, (row, own_headers) in enumerate(items):
            send = None
            # A stream of gRPC would make the worker hang.
            if not (envelope or is_grpc(own_headers)):
                send = partial(send_part, context, index, deadline)
                over_http.add(index)
            http_request = self.dispatcher.http_request(
                row, own_headers, send, takes_bytes=not envelope
            )
            http_requests.append(http_request)
            if http_request.explains:
                deadline.shorten(self.engine.limits.shared_predict)
        if self.broadcast:
            self.broadcast.share_requests(_shared(http_requests))
        send_ready = partial(send_responses, context, over_http)
        responses = self.dispatcher.dispatch(http_requests, meter, deadline, send_ready)
        for index, head in enumerate(envelope.heads(responses) if envelope else responses):
            set_response(context, index, head)
            if index not in over_http and is_grpc(headers[index]):
                context.set_response_header(index, *END_OF_STREAM)
        if meter.counts["errors"]:
            self._check_health(responses, context, over_http)
        return envelope.results(responses) if envelope else list(map(BODY, responses))

    def _check_health(
        self, responses: Sequence[HttpResponse], context: Any, over_http: set[int]
    ) -> None:
        """Answer the batch and end the worker if its device has failed and nothing was sent."""
        if any(map(has_failed, responses)):
            self.engine.check_health()
        failures = {index: each for index, each in enumerate(responses) if each.status >= 400}
        if (
            self.engine.device_failed
            and failures
            and are_unsent(context, over_http, len(responses))
        ):
            # The other responses were complete before the failure.
            send_responses(context, over_http, dict(enumerate(responses)))
            send_failures(context, failures)
            end_worker()

    def end_hanging(self, context: Any) -> None:
        """Answer the batch that hangs, if no part of it was sent, and end the worker."""
        headers = headers_of(context)
        over_http = {index for index, own in enumerate(headers) if not is_grpc(own)}
        if are_unsent(context, over_http, len(headers)):
            failure = error_response(WorkerHangs())
            send_failures(context, dict.fromkeys(range(len(headers)), failure))
        end_worker()


def require_single_worker(key: str, reason: str) -> None:
    """Check that TorchServe has started no other worker of this model before.

    Args:
        key: the key of the YAML that needs a single worker.
        reason: what is wrong with several.

    Raises:
        WrongConfig: there is another one.
    """
    if has_older_worker(psutil.Process()):
        raise WrongConfig(
            key,
            f"this model has a worker already, and {reason}",
            "set minWorkers and maxWorkers to 1",
        )


def _shared(http_requests: Sequence[HttpRequest]) -> list[SharedRequest]:
    """Return requests as processes on other machines get them."""
    return [SharedRequest(each.row, each.headers, bool(each.send)) for each in http_requests]


def _traces() -> bool:
    """Return whether traces are sent; the package that sends them is there then."""
    if not (is_rank0() and tracing.is_on(os.environ)):
        return False
    require_package(tracing.PACKAGE, "OTEL_EXPORTER_OTLP_ENDPOINT", tracing.INSTALL)
    return True


def _warn_of_single_requests(config: ModelConfig, batch_size: int | None) -> None:
    """Log the keys that are missing in a YAML which `torch-model-archiver` packed."""
    mode = config.handler.mode
    defaults = serving_defaults(mode)
    if batch_size != 1 or "batchSize" in config.model_fields_set or defaults.batch_size == 1:
        return
    logger.warning(
        "The YAML has no batchSize, so TorchServe passes one request at a time. Add %s, or pack the"
        " model with `hf-serve pack`, which adds the fastest values for mode: %s.",
        "continuousBatching: true and batchSize: 256"
        if defaults.continuous_batching
        else f"batchSize: {defaults.batch_size} and maxBatchDelay: {defaults.max_batch_delay}",
        mode,
    )


def headers_of(context: Any) -> list[Headers]:
    """Return the headers of each request, not row: an envelope can hold several rows."""
    headers = []
    for processor in context.request_processor:
        headers.append(processor.get_request_properties())
    return headers


def statuses_of(context: Any) -> list[int]:
    """Return the status of each response."""
    count = len(context.request_processor)
    return [context.get_response_status(index)[0] for index in range(count)]


def set_response(context: Any, index: int, response: HttpResponse) -> None:
    """Set content type, status and headers of the response to a request."""
    if response.content_type:
        context.set_response_content_type(index, response.content_type)
    context.set_response_status(code=response.status, phrase="", idx=index)
    for name, value in response.headers.items():
        context.set_response_header(index, name, value)


def log_failures(context: Any) -> None:
    """Log the failed requests of a batch that TorchServe's worker answers at its end."""
    headers, statuses = headers_of(context), statuses_of(context)
    for index, number in (context.request_ids or {}).items():
        log_failure(number, statuses[index], headers[index])


def log_failure(request_id: str, status: int, headers: Headers) -> None:
    """Log the id of a failed request, which its client has as `x-request-id`, and its trace."""
    if status < 500:
        return
    traced = (value for name, value in headers.items() if name.lower() == "traceparent")
    match = TRACE.fullmatch(str(next(traced, "")))
    trace = f" trace_id={match[1]}" if match else ""
    logger.warning("Request failed: request_id=%s status=%d%s", request_id, status, trace)


def passed_by_envelope(rows: Any, headers: Sequence[Headers], context: Any) -> bool:
    """Return whether an envelope passed the rows, and not TorchServe itself."""
    if hasattr(context, "input_names") or not isinstance(rows, list) or len(rows) != len(headers):
        return True
    # A row has every field that its headers describe; an item of an envelope has others.
    for row, own_headers in zip(rows, headers, strict=True):
        if not isinstance(row, Mapping):
            return True
        for name, value in own_headers.items():
            if isinstance(value, Mapping) and name not in row:
                return True
    return False


def send_part(context: Any, index: int, deadline: Deadline, part: HttpResponse) -> None:
    """Send a part of the response of one row; the return value of `handle` is the last part.

    The message names this row only, so the responses of other rows are not affected. With it
    TorchServe starts to count `responseTimeout` again, so the deadline starts again, too.
    """
    deadline.restart()
    set_response(context, index, part)
    ids = {index: context.request_ids[index]}
    send_intermediate_predict_response({index: part.body}, ids, "Prediction success", 200, context)


def send_responses(
    context: Any, over_http: set[int], responses: Mapping[int, HttpResponse]
) -> None:
    """Send whole responses over HTTP, while other rows of the batch are not ready.

    Each row is twice in the message: its response as a part of a stream, and the end of the stream.
    The row's id is removed from those that TorchServe's worker answers at the end. An error has to
    wait: TorchServe closes the connection after the head of a part with such a status.
    """
    ready = [
        index
        for index, response in responses.items()
        if index in over_http and response.status < 400
    ]
    if not ready or not is_connected(context):
        return
    for index in ready:
        set_response(context, index, responses[index])
    parts = [(index, responses[index].body, True) for index in ready]
    _send_parts(context, [*parts, *((index, b"", False) for index in ready)])
    for index in ready:
        del context.request_ids[index]


def send_failures(context: Any, failures: Mapping[int, HttpResponse]) -> None:
    """Send the errors of rows; TorchServe goes on waiting.

    After each of them TorchServe closes the connection. So neither the part to follow nor the error
    that TorchServe adds when the worker ends reaches a client.
    """
    for index, response in failures.items():
        set_response(context, index, response)
    parts = [(index, response.body, None) for index, response in failures.items()]
    _send_parts(context, [*parts, (next(iter(failures)), b"", True)])


def are_unsent(context: Any, over_http: set[int], count: int) -> bool:
    """Return whether all rows came over HTTP, and no response or part of one was sent."""
    headers = [context.get_response_headers(index) for index in range(count)]
    return (
        is_connected(context)
        and len(over_http) == len(context.request_ids) == count
        and not any(STREAM_NEXT in own for own in headers)
    )


def _send_parts(context: Any, parts: Sequence[tuple[int, bytes, bool | None]]) -> None:
    """Send a message with parts of responses: the row, its part, and whether another follows.

    None is for a whole response. A row can have two parts.
    """
    if is_rank0():
        send_parts(context, parts)


Headers = Mapping[str, Any]
UNKNOWN_TYPE = ""  # a content type that only the envelope knows
PLAIN = "text/plain"


@dataclass(frozen=True)
class Envelope:
    """The items that an envelope passed.

    Attributes:
        items: the items from the bodies; with kserve the value of `instances`, whatever it is.
        tensors: whether the items are tensors, whose results must be texts.
    """

    items: Any
    headers: Sequence[Headers]
    tensors: bool

    def rows(self) -> list[tuple[dict[str, Any], Headers]]:
        """Return the fields and headers of each item, as if it had been sent alone.

        Where the request of an item is unknown, the item gets the headers of the first request,
        and is explained if all requests are for explanations.
        """
        if not isinstance(self.items, list) or not self.items:
            return [({"body": {"instances": self.items}}, _for_item(self.headers[0]))]
        if len(self.items) == len(self.headers):
            owners = self.headers
        else:
            explain = str(all(each.get("explain") == "True" for each in self.headers))
            owners = [{**self.headers[0], "explain": explain}] * len(self.items)
        contents = (_content(item, tensors=self.tensors) for item in self.items)
        return [
            (
                {"body": content} if content is not None else {},
                _for_received(owner) if isinstance(content, bytearray) else _for_item(owner),
            )
            for content, owner in zip(contents, owners, strict=True)
        ]

    def heads(self, responses: Sequence[HttpResponse]) -> list[HttpResponse]:
        """Return for each request a response with its status, type and headers."""
        if len(responses) == len(self.headers):
            return [replace(each, content_type=self._type(each)) for each in responses]
        failed = all(response.status >= 400 for response in responses)
        return [HttpResponse(b"", responses[0].status if failed else 200)] * len(self.headers)

    def results(self, responses: Sequence[HttpResponse]) -> list[Any]:
        """Return what the envelope wraps: values of JSON, or texts, but never bytes."""
        return [self._result(response) for response in responses]

    def _result(self, response: HttpResponse) -> Any:
        text = response.body.decode()
        return json.loads(text) if response.content_type == JSON and not self.tensors else text

    def _type(self, response: HttpResponse) -> str:
        """Return a content type; a text may stay one, or become an item of a list."""
        if self.tensors:
            return JSON
        return UNKNOWN_TYPE if response.content_type.startswith(PLAIN) else response.content_type


def _for_item(headers: Headers) -> dict[str, Any]:
    """Return the headers that hold for an item; the type of JSON belongs to the whole body."""
    own = {name: value for name, value in headers.items() if not isinstance(value, Mapping)}
    if not HttpRequest({}, own).type.endswith("json"):
        return own
    return {
        name: value for name, value in own.items() if name.lower() not in ("content-type", "accept")
    }


def _for_received(headers: Headers) -> dict[str, Any]:
    """Return the headers of a body as it was received, which only the `body` envelope passes.

    TorchServe receives bodies as bytearrays; texts that the `json` envelope decodes are bytes.
    """
    described = (headers.get(name) for name in ("data", "body"))  # the order of the envelope
    own = {"body": next((each for each in described if isinstance(each, Mapping)), None)}
    kind = HttpRequest({"body": b""}, {**headers, **own}).content_type
    return {**_for_item(headers), "body": {"content-type": kind}}


def _content(item: Any, *, tensors: bool) -> Any:
    if tensors and isinstance(item, Mapping):
        return item.get("data")
    if isinstance(item, Mapping):  # the json envelope has decoded base64
        return {name: _as_text(value) for name, value in item.items()}
    return item


def _as_text(value: Any) -> Any:
    """Return the text of bytes; what is not UTF-8 becomes surrogates, which no text may have."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


# How often the thread looks at the batches that run, in seconds.
INTERVAL = 0.5
# The innermost calls of a thread that are logged.
LOGGED_CALLS = 30
# Seconds in which TorchServe passes on the responses that it was sent, and reports the
# last metrics.
LAST_RESPONSES_SECONDS = 1.0


class Watchdog:
    """Ends a batch that hangs before TorchServe kills the worker without a trace in the log.

    It watches batches in a thread, which starts with the first batch.

    A thread that hangs outside of Python and keeps its lock stops this one, too; TorchServe's
    `responseTimeout` remains.

    Args:
        seconds: how long a batch may take since its deadline started.
        on_hang: called once, in that thread.
        interval: how often it looks at them, in seconds.
    """

    def __init__(
        self, seconds: float, on_hang: Callable[[], None], interval: float = INTERVAL
    ) -> None:
        self._seconds, self._on_hang, self._interval = seconds, on_hang, interval
        self._lock = threading.Lock()
        self._watched: dict[int, Deadline] = {}
        self._has_work = threading.Event()
        self._is_started = False

    @contextmanager
    def watch(self, deadline: Deadline) -> Iterator[None]:
        """Watch the block; its time starts again when its deadline does."""
        key = id(deadline)
        with self._lock:
            self._watched[key] = deadline
            if not self._is_started:
                self._start()
        self._has_work.set()
        try:
            yield
        finally:
            with self._lock:
                del self._watched[key]

    def _start(self) -> None:
        # Where the process cannot have a thread now, the next batch tries again.
        with suppress(NoThread):
            start_thread("watchdog", self._run)
            self._is_started = True

    def _run(self) -> None:
        while not self._is_hanging():
            self._has_work.wait()
            time.sleep(self._interval)

    def _is_hanging(self) -> bool:
        """Return whether a batch hangs; one that ends meanwhile waits for what is done about it."""
        with self._lock:
            if not self._watched:
                self._has_work.clear()
            if not any(each.age > self._seconds for each in self._watched.values()):
                return False
            logger.error(
                "A batch takes longer than %g s; its worker ends. %s", self._seconds, call_stacks()
            )
            self._on_hang()
            return True


def call_stacks() -> str:
    """Return where each thread of this process is, without values: file, line and function."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = (
        f"{names.get(number, number)} at {_calls(frame)}"
        for number, frame in sys._current_frames().items()
        if number != threading.get_ident()
    )
    return "; ".join(stacks)


def _calls(frame: FrameType | None) -> str:
    calls: list[str] = []
    while frame and len(calls) < LOGGED_CALLS:
        code = frame.f_code
        calls.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(calls))


def end_worker() -> NoReturn:
    """End this process, without a clean-up that would use the accelerator and could hang.

    TorchServe must be waiting for a response: a worker that ends between two batches takes the
    requests with it that TorchServe is collecting for the next one, and their clients wait forever.
    """
    logger.error(
        "The accelerator or the model failed; this worker ends, and TorchServe starts a new one"
    )
    time.sleep(LAST_RESPONSES_SECONDS)
    sys.stdout.flush()
    os._exit(1)
