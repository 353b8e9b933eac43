"""The TorchServe entry point: connects the worker to the engine."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from ts.handler_utils.utils import send_intermediate_predict_response
from ts.metrics.metric_type_enum import MetricTypes

from handlers.compat.imports import without_openvino_backend

with without_openvino_backend():
    from ts.torch_handler.base_handler import BaseHandler

from handlers.checkpoints.devices import pick_device
from handlers.compat.torchserve import (
    is_connected,
    limit_prediction_time,
    read_messages_in_blocks,
    send_parts,
)
from handlers.config.model_config import CONFIG_FILE, ModelConfig
from handlers.engine import Engine
from handlers.errors import ConfigError, DeviceFailed, RequestError, WorkerHangs
from handlers.http.envelopes import Envelope, Headers
from handlers.http.limits import server_limits
from handlers.http.repeated_fields import distinct_names
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json, has_failed
from handlers.protocols.dispatcher import Dispatcher
from handlers.runtime.deadline import Deadline
from handlers.runtime.imports import require_package
from handlers.runtime.integrity import verify
from handlers.runtime.memory import FreedMemory, limit_memory_growth
from handlers.runtime.ranks import is_rank0
from handlers.runtime.request_broadcast import (
    RequestBroadcast,
    SharedRequest,
    has_other_machines,
)
from handlers.runtime.threads import ThreadShare
from handlers.runtime.watchdog import Watchdog
from handlers.runtime.worker_exit import end_worker
from handlers.telemetry import tracing
from handlers.telemetry.log_levels import silence_libraries
from handlers.telemetry.meter import Meter
from handlers.telemetry.metrics import MetricsReporter
from handlers.telemetry.tracing import TracedMeter
from handlers.torchserve.context import STREAM_NEXT, headers_of, log_failure, set_response
from handlers.torchserve.continuous_responses import ContinuousResponses, check_single_worker

logger = logging.getLogger(__name__)

# Marks the end of a stream. gRPC's StreamPredictions requires it, otherwise the worker is killed.
# Over HTTP it would make the client hang.
END_OF_STREAM = (STREAM_NEXT, "false")


class TransformersHandler(BaseHandler):
    """Serves one checkpoint as configured by its model-config.yaml."""

    def initialize(self, context: Any) -> None:
        """Load the model.

        Raises:
            ConfigError: the YAML, the checkpoint or the archive is invalid.
        """
        limit_memory_growth()
        silence_libraries()
        limit_prediction_time()
        read_messages_in_blocks(distinct_names)
        self.context, self.manifest = context, context.manifest
        properties = context.system_properties
        self.device = pick_device(properties)
        try:
            sums = verify(Path(properties["model_dir"]))
            config = ModelConfig.parse(context.model_yaml_config, self._config_name())
            if config.continuousBatching:
                check_single_worker()
            workers = 1 if config.continuousBatching else config.maxWorkers
            self.threads = ThreadShare(workers, config.torchrun, is_fixed=config.pt2.compile.enable)
            self.engine = Engine.load(Path(properties["model_dir"]), config, self.device, sums=sums)
            self.engine.require_health()
        except ConfigError as error:
            logger.error("Model not loaded. %s", error)
            raise
        self.model = self.engine.model
        name = getattr(context, "model_name", None) or self.manifest["model"]["modelName"]
        version = self.manifest["model"].get("modelVersion", "1.0")
        self.dispatcher = Dispatcher(self.engine, str(name), str(version))
        self.broadcast = RequestBroadcast() if has_other_machines() else None
        if self.broadcast:
            self.broadcast.share(asdict(server_limits()))
        self.reporter = MetricsReporter(MetricTypes.GAUGE)
        self.tracer = tracing.create(str(name), str(version)) if self._traces() else None
        self.freed_memory = FreedMemory()
        self.watchdog = Watchdog(self.engine.limits.hang, partial(self._end_hanging, context))
        self.continuous = (
            ContinuousResponses(
                self.dispatcher,
                self.engine,
                self.reporter,
                self.freed_memory,
                self.watchdog,
                self.tracer,
            )
            if config.continuousBatching
            else None
        )
        self.initialized = True

    def handle(self, data: Any, context: Any) -> list[Any]:
        """Process a batch; status and content type are set for each row.

        Args:
            data: the rows of the batch.
            context: TorchServe's context.

        Returns:
            The response body of each row.
        """
        if self.engine.device_failed and not (self.continuous and self.continuous.is_busy):
            end_worker()
        if self.continuous:
            return self.continuous.handle(data, context)
        deadline = Deadline(self.engine.limits.predict)
        with self.watchdog.watch(deadline):
            return self._handle_batch(data, context, deadline)

    def _handle_batch(self, data: Any, context: Any, deadline: Deadline) -> list[Any]:
        start, meter = time.perf_counter(), Meter() if self.tracer is None else TracedMeter()
        self.threads.refresh()
        headers = headers_of(context)
        envelope = Envelope.of(data, headers, context)
        if envelope:
            results = self._handle_enveloped(envelope, context, meter, deadline)
        else:
            results = self._handle_rows(data, headers, context, meter, deadline)
        _end_streams(context, headers)
        statuses = [context.get_response_status(index)[0] for index in range(len(headers))]
        if self.tracer and isinstance(meter, TracedMeter):
            self.tracer.record(headers, statuses, meter)
        if meter.counts["errors"]:
            for index, number in (context.request_ids or {}).items():
                log_failure(number, statuses[index], headers[index])
            self.freed_memory.release()
        if is_rank0():
            self.reporter.report(context.metrics, meter, time.perf_counter() - start)
        return results

    def _handle_rows(
        self, rows: Any, headers: list[Headers], context: Any, meter: Meter, deadline: Deadline
    ) -> list[bytes]:
        http_requests = [
            _http_request(row, row_headers, partial(_send, context, index, deadline))
            for index, (row, row_headers) in enumerate(zip(rows, headers, strict=True))
        ]
        self._share_time(http_requests, deadline)
        self._share_requests(http_requests)
        over_http = {
            index for index, http_request in enumerate(http_requests) if not http_request.by_grpc
        }
        responses = self.dispatcher.dispatch(
            http_requests, meter, deadline, partial(_send_ready, context, over_http)
        )
        if any(has_failed(response) for response in responses):
            self.engine.check_health()
        for index, response in enumerate(responses):
            set_response(context, index, response)
        if self.engine.device_failed and _are_unsent(context, over_http, len(responses)):
            errors = [each if each.status >= 400 else None for each in responses]
            _send_failures(context, errors, DeviceFailed())
            end_worker()
        return [response.body for response in responses]

    def _handle_enveloped(
        self, envelope: Envelope, context: Any, meter: Meter, deadline: Deadline
    ) -> list[Any]:
        http_requests = envelope.http_requests()
        self._share_time(http_requests, deadline)
        self._share_requests(http_requests)
        responses = self.dispatcher.dispatch(http_requests, meter, deadline)
        for index, head in enumerate(envelope.heads(responses)):
            set_response(context, index, head)
        return envelope.results(responses)

    def _end_hanging(self, context: Any) -> None:
        """Answer the batch that hangs, if no part of it was sent, and end the worker."""
        count = len(context.request_processor)
        over_http = {
            index
            for index, row_headers in enumerate(headers_of(context))
            if not HttpRequest({}, row_headers).by_grpc
        }
        if self.continuous is None and _are_unsent(context, over_http, count):
            _send_failures(context, [None] * count, WorkerHangs())
        end_worker()

    def _share_time(self, http_requests: Sequence[HttpRequest], deadline: Deadline) -> None:
        if any(http_request.explains for http_request in http_requests):
            deadline.shorten(self.engine.limits.shared_predict)

    def _traces(self) -> bool:
        """Return whether traces are sent; the package that sends them is there then."""
        if not (is_rank0() and tracing.is_on(os.environ)):
            return False
        require_package(tracing.PACKAGE, "OTEL_EXPORTER_OTLP_ENDPOINT", tracing.INSTALL)
        return True

    def _share_requests(self, http_requests: Sequence[HttpRequest]) -> None:
        """Pass requests to the processes on other machines, which compute their part."""
        if self.broadcast:
            self.broadcast.share_requests(
                [SharedRequest(each.row, each.headers, bool(each.send)) for each in http_requests]
            )

    def _config_name(self) -> str:
        return str(self.manifest["model"].get("configFile", CONFIG_FILE))


def _http_request(row: Any, headers: Headers, send: Callable[[HttpResponse], None]) -> HttpRequest:
    """Return the request of a row; gRPC requests cannot stream, as the worker would hang."""
    http_request = HttpRequest(row, headers)
    return http_request if http_request.by_grpc else replace(http_request, send=send)


def _send(context: Any, index: int, deadline: Deadline, part: HttpResponse) -> None:
    """Send a part of the response of one row; the return value of `handle` is the last part.

    The message names this row only, so the responses of other rows are not affected. With it
    TorchServe starts to count `responseTimeout` again, so the deadline starts again, too.
    """
    deadline.restart()
    set_response(context, index, part)
    ids = {index: context.request_ids[index]}
    send_intermediate_predict_response({index: part.body}, ids, "Prediction success", 200, context)


def _send_ready(context: Any, over_http: set[int], responses: Mapping[int, HttpResponse]) -> None:
    """Send whole responses over HTTP, while other rows of the batch are not ready.

    TorchServe takes a batch for finished with a message in which no row has a part to follow. So
    each row is twice in the message: its response as a part of a stream, and the end of the stream.
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


def _send_failures(
    context: Any, responses: Sequence[HttpResponse | None], error: RequestError
) -> None:
    """Send errors, one instead of each response that is None; TorchServe goes on waiting.

    Each of them is an error, after which TorchServe closes the connection. So neither the part to
    follow nor the error that TorchServe adds when the worker ends reaches a client.
    """
    failure = HttpResponse(
        encode_json(error.whole_body()), error.status, headers=dict(error.headers)
    )
    errors = [response or failure for response in responses]
    for index, response in enumerate(errors):
        set_response(context, index, response)
    parts = [(index, response.body, None) for index, response in enumerate(errors)]
    _send_parts(context, [*parts, (0, b"", True)])


def _are_unsent(context: Any, over_http: set[int], count: int) -> bool:
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


def _end_streams(context: Any, headers: list[Headers]) -> None:
    for index, row_headers in enumerate(headers):
        if HttpRequest({}, row_headers).by_grpc:
            context.set_response_header(index, *END_OF_STREAM)
