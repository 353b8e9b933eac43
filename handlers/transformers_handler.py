"""The handler that TorchServe loads: the bridge between its worker and the engine."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from ts.handler_utils.utils import send_intermediate_predict_response
from ts.metrics.metric_type_enum import MetricTypes

from handlers.runtime.imports import hide_packages

# It imports OpenVINO's backend of torch.compile and with it the whole compiler, more than a second
# of every start; torch finds that backend by itself when a YAML names it.
with hide_packages("openvino.torch", silence="ts.torch_handler.base_handler"):
    from ts.torch_handler.base_handler import BaseHandler

from handlers.checkpoints.devices import pick_device
from handlers.config.model_config import ModelConfig
from handlers.engine import Engine
from handlers.errors import ConfigError
from handlers.http.envelopes import Envelope, Headers
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.protocols.dispatcher import Dispatcher
from handlers.runtime.ranks import is_rank0
from handlers.runtime.threads import set_num_threads
from handlers.telemetry.log_levels import silence_libraries
from handlers.telemetry.meter import Meter
from handlers.telemetry.metrics import MetricsReporter

logger = logging.getLogger(__name__)

# gRPC's StreamPredictions needs it, or the worker is killed; over HTTP the client would hang.
LAST_PART = ("ts_stream_next", "false")


class TransformersHandler(BaseHandler):
    """Serves one checkpoint as its model-config.yaml says."""

    def initialize(self, context: Any) -> None:
        """Load the model; a wrong YAML or checkpoint stops the worker with one sentence."""
        silence_libraries()
        self.context, self.manifest = context, context.manifest
        properties = context.system_properties
        self.device = pick_device(properties)
        try:
            config = ModelConfig.parse(context.model_yaml_config, self._config_name())
            set_num_threads(config.maxWorkers, config.torchrun)
            self.engine = Engine.load(Path(properties["model_dir"]), config, self.device)
        except ConfigError as error:
            logger.error("Model not loaded. %s", error)
            raise
        self.model = self.engine.model
        name = getattr(context, "model_name", None) or self.manifest["model"]["modelName"]
        version = self.manifest["model"].get("modelVersion", "1.0")
        self.dispatcher = Dispatcher(self.engine, str(name), str(version))
        self.reporter = MetricsReporter(MetricTypes.GAUGE)
        self.initialized = True

    def handle(self, data: Any, context: Any) -> list[Any]:
        """Answer a batch; each row has its own status and content type."""
        start, meter = time.perf_counter(), Meter()
        headers = _headers(context)
        envelope = Envelope.of(data, headers, context)
        if envelope:
            results = self._handle_enveloped(envelope, context, meter)
        else:
            results = self._handle_rows(data, headers, context, meter)
        _end_streams(context, headers)
        if is_rank0():
            self.reporter.report(context.metrics, meter, time.perf_counter() - start)
        return results

    def _handle_rows(
        self, rows: Any, headers: list[Headers], context: Any, meter: Meter
    ) -> list[bytes]:
        http_requests = [
            _http_request(row, own, context, number)
            for number, (row, own) in enumerate(zip(rows, headers, strict=True))
        ]
        responses = self.dispatcher.dispatch(http_requests, meter)
        for number, response in enumerate(responses):
            _set_response(context, number, response)
        return [response.body for response in responses]

    def _handle_enveloped(self, envelope: Envelope, context: Any, meter: Meter) -> list[Any]:
        responses = self.dispatcher.dispatch(envelope.http_requests(), meter)
        for number, head in enumerate(envelope.heads(responses)):
            _set_response(context, number, head)
        return envelope.results(responses)

    def _config_name(self) -> str:
        return str(self.manifest["model"].get("configFile", "model-config.yaml"))


def _http_request(row: Any, headers: Headers, context: Any, number: int) -> HttpRequest:
    """Return one row; by gRPC its answer cannot be sent in parts: the worker would hang."""
    http_request = HttpRequest(row, headers)
    return (
        http_request
        if http_request.by_grpc
        else replace(http_request, send=partial(_send, context, number))
    )


def _set_response(context: Any, number: int, response: HttpResponse) -> None:
    if response.content_type:
        context.set_response_content_type(number, response.content_type)
    context.set_response_status(code=response.status, phrase="", idx=number)
    for name, value in response.headers.items():
        context.set_response_header(number, name, value)


def _send(context: Any, number: int, part: HttpResponse) -> None:
    """Send a part of one row's answer; TorchServe ends it with what `handle` returns for the row.

    Only the rows that a message names get anything from it, so the others' answers stay whole.
    """
    _set_response(context, number, part)
    ids = {number: context.request_ids[number]}
    send_intermediate_predict_response({number: part.body}, ids, "Prediction success", 200, context)


def _end_streams(context: Any, headers: list[Headers]) -> None:
    for number, own in enumerate(headers):
        if HttpRequest({}, own).by_grpc:
            context.set_response_header(number, *LAST_PART)


def _headers(context: Any) -> list[Headers]:
    """Return each request's; an envelope can make more rows than requests."""
    return [context.get_all_request_header(at) for at in range(len(context.request_processor))]
