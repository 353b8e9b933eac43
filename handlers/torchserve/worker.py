"""A worker of TorchServe: the loaded model of its archive, and what it needs for each batch."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ts.metrics.metric_type_enum import MetricTypes

from handlers.checkpoints.placement import pick_device
from handlers.config.model_config import CONFIG_FILE, ModelConfig
from handlers.config.serving_defaults import serving_defaults
from handlers.dispatcher import Dispatcher
from handlers.errors import ConfigError, DeviceFailed, WorkerHangs
from handlers.http.limits import server_limits
from handlers.http.request import HttpRequest, is_grpc
from handlers.http.response import FAILURES
from handlers.process.deadline import Deadline
from handlers.process.packages import require_package
from handlers.process.ranks import (
    RequestBroadcast,
    SharedRequest,
    has_other_machines,
    is_rank0,
)
from handlers.process.resources import FreedMemory
from handlers.process.threads import ThreadShare
from handlers.process.watchdog import Watchdog, end_worker
from handlers.telemetry import tracing
from handlers.telemetry.meter import Meter
from handlers.telemetry.metrics import MetricsReporter
from handlers.telemetry.tracing import TracedMeter
from handlers.torchserve.continuous_batching import ContinuousResponses, check_single_worker
from handlers.torchserve.partial_responses import (
    are_unsent,
    send_failures,
    send_part,
    send_responses,
)
from handlers.torchserve.requests import (
    STREAM_NEXT,
    Envelope,
    Headers,
    headers_of,
    log_failures,
    set_response,
    statuses_of,
)
from handlers.worker_start import load_engine

logger = logging.getLogger(__name__)

# Marks the end of a stream. gRPC's StreamPredictions requires it, otherwise the worker is killed.
# Over HTTP it would make the client hang.
END_OF_STREAM = (STREAM_NEXT, "false")


class Worker:
    """The model of an archive in a worker of TorchServe.

    Attributes:
        engine: the model.
        threads: the share of the cores of this worker.
        dispatcher: answers HTTP requests.
        continuous: answers each request by itself, with `continuousBatching`.

    Raises:
        ConfigError: the YAML, the checkpoint or the archive is invalid.
    """

    def __init__(self, context: Any) -> None:
        properties, manifest = context.system_properties, context.manifest
        folder, described = Path(properties["model_dir"]), manifest["model"]
        self.device = pick_device(properties)
        try:
            where = str(described.get("configFile", CONFIG_FILE))
            config = ModelConfig.parse(context.model_yaml_config, where)
            if config.continuousBatching:
                check_single_worker()
            workers = 1 if config.continuousBatching else config.maxWorkers
            self.threads = ThreadShare(workers, config.torchrun, is_fixed=config.pt2.compile.enable)
            self.engine = load_engine(folder, config, self.device)
        except ConfigError as error:
            logger.error("Model not loaded. %s", error)
            raise
        name = str(getattr(context, "model_name", None) or described["modelName"])
        version = str(described.get("modelVersion", "1.0"))
        self.dispatcher = Dispatcher(self.engine, name, version)
        _warn_of_single_requests(config, properties.get("batch_size"))
        self.reporter = MetricsReporter(MetricTypes.GAUGE)
        self.is_rank0 = is_rank0()
        self.tracer = tracing.create(name, version) if _traces() else None
        self.freed_memory = FreedMemory()
        self.watchdog = Watchdog(self.engine.limits.hang, partial(self._end_hanging, context))
        self.broadcast = RequestBroadcast() if has_other_machines() else None
        if self.broadcast:
            self.broadcast.share(asdict(server_limits()))
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

    def handle(self, rows: Any, context: Any) -> list[Any]:
        """Answer a batch; status and content type are set for each row.

        Args:
            rows: the rows of the batch.
            context: TorchServe's context.

        Returns:
            The response body of each row.
        """
        if self.engine.device_failed and not (self.continuous and self.continuous.is_busy):
            end_worker()
        if self.continuous:
            return self.continuous.handle(rows, context)
        start, meter = time.perf_counter(), Meter() if self.tracer is None else TracedMeter()
        deadline = Deadline(self.engine.limits.predict)
        with self.watchdog.watch(deadline):
            self.threads.refresh()
            headers = headers_of(context)
            envelope = Envelope.of(rows, headers, context)
            if envelope:
                results = self._handle_enveloped(envelope, context, meter, deadline)
            else:
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
    ) -> list[bytes]:
        http_requests = []
        over_http = set()
        for index, (row, own_headers) in enumerate(zip(rows, headers, strict=True)):
            # A stream of gRPC would make the worker hang.
            send = None if is_grpc(own_headers) else partial(send_part, context, index, deadline)
            http_requests.append(self.dispatcher.http_request(row, own_headers, send))
            if send:
                over_http.add(index)
            if http_requests[-1].explains:
                deadline.shorten(self.engine.limits.shared_predict)
        if self.broadcast:
            self.broadcast.share_requests(_shared(http_requests))
        responses = self.dispatcher.dispatch(
            http_requests, meter, deadline, partial(send_responses, context, over_http)
        )
        bodies, failed = [], False
        for index, response in enumerate(responses):
            bodies.append(response.body)
            failed |= response.status in FAILURES
            set_response(context, index, response)
            if index not in over_http:
                context.set_response_header(index, *END_OF_STREAM)
        if failed:
            self.engine.check_health()
        if self.engine.device_failed and are_unsent(context, over_http, len(responses)):
            errors = [each if each.status >= 400 else None for each in responses]
            send_failures(context, errors, DeviceFailed())
            end_worker()
        return bodies

    def _handle_enveloped(
        self, envelope: Envelope, context: Any, meter: Meter, deadline: Deadline
    ) -> list[Any]:
        http_requests = [
            self.dispatcher.http_request(row, headers, takes_bytes=False)
            for row, headers in envelope.rows()
        ]
        if any(http_request.explains for http_request in http_requests):
            deadline.shorten(self.engine.limits.shared_predict)
        if self.broadcast:
            self.broadcast.share_requests(_shared(http_requests))
        responses = self.dispatcher.dispatch(http_requests, meter, deadline)
        for index, head in enumerate(envelope.heads(responses)):
            set_response(context, index, head)
            if is_grpc(envelope.headers[index]):
                context.set_response_header(index, *END_OF_STREAM)
        return envelope.results(responses)

    def _end_hanging(self, context: Any) -> None:
        """Answer the batch that hangs, if no part of it was sent, and end the worker."""
        headers = headers_of(context)
        over_http = {index for index, own in enumerate(headers) if not is_grpc(own)}
        if self.continuous is None and are_unsent(context, over_http, len(headers)):
            send_failures(context, [None] * len(headers), WorkerHangs())
        end_worker()


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
    """Log what a YAML lacks that `torch-model-archiver` packed as it is."""
    mode = config.handler.mode
    defaults = serving_defaults(mode)
    if batch_size != 1 or "batchSize" in config.model_fields_set or defaults.batch_size == 1:
        return
    logger.warning(
        "The YAML has no batchSize, so TorchServe passes one request at a time. Add %s, or pack the"
        " model with scripts/create_archive.py, which adds the fastest values for mode: %s.",
        "continuousBatching: true and batchSize: 256"
        if defaults.continuous_batching
        else f"batchSize: {defaults.batch_size} and maxBatchDelay: {defaults.max_batch_delay}",
        mode,
    )
