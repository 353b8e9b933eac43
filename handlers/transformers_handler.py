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

from handlers.absent import absent

# It imports OpenVINO's backend of torch.compile and with it the whole compiler, more than a second
# of every start; torch finds that backend by itself when a YAML names it.
with absent("openvino.torch", unheard="ts.torch_handler.base_handler"):
    from ts.torch_handler.base_handler import BaseHandler

from handlers.answer import Answer
from handlers.bodies import Post
from handlers.config import ModelConfig
from handlers.devices import pick_device
from handlers.dialogue import Dialogue
from handlers.engine import Engine
from handlers.envelopes import Envelope, Headers
from handlers.errors import ConfigError
from handlers.meter import Meter
from handlers.metrics import Reporter
from handlers.quiet import quieten
from handlers.ranks import is_first
from handlers.threads import share_cores

logger = logging.getLogger(__name__)

# gRPC's StreamPredictions needs it, or the worker is killed; over HTTP the client would hang.
LAST_PART = ("ts_stream_next", "false")


class TransformersHandler(BaseHandler):
    """Serves one checkpoint as its model-config.yaml says."""

    def initialize(self, context: Any) -> None:
        """Load the model; a wrong YAML or checkpoint stops the worker with one sentence."""
        quieten()
        self.context, self.manifest = context, context.manifest
        properties = context.system_properties
        self.device = pick_device(properties)
        try:
            config = ModelConfig.parse(context.model_yaml_config, self._config_name())
            share_cores(config.maxWorkers, config.torchrun)
            self.engine = Engine.load(Path(properties["model_dir"]), config, self.device)
        except ConfigError as error:
            logger.error("Model not loaded. %s", error)
            raise
        self.model = self.engine.model
        name = getattr(context, "model_name", None) or self.manifest["model"]["modelName"]
        version = self.manifest["model"].get("modelVersion", "1.0")
        self.dialogue = Dialogue(self.engine, str(name), str(version))
        self.reporter = Reporter(MetricTypes.GAUGE)
        self.initialized = True

    def handle(self, data: Any, context: Any) -> list[Any]:
        """Answer a batch; each row has its own status and content type."""
        start, meter = time.perf_counter(), Meter()
        headers = _headers(context)
        envelope = Envelope.of(data, headers, context)
        if envelope:
            results = self._answer_enveloped(envelope, context, meter)
        else:
            results = self._answer(data, headers, context, meter)
        _end_streams(context, headers)
        if is_first():
            self.reporter.report(context.metrics, meter, time.perf_counter() - start)
        return results

    def _answer(self, rows: Any, headers: list[Headers], context: Any, meter: Meter) -> list[bytes]:
        posts = [
            _post(row, own, context, number)
            for number, (row, own) in enumerate(zip(rows, headers, strict=True))
        ]
        answers = self.dialogue.answer(posts, meter)
        for number, answer in enumerate(answers):
            _set_head(context, number, answer)
        return [answer.body for answer in answers]

    def _answer_enveloped(self, envelope: Envelope, context: Any, meter: Meter) -> list[Any]:
        answers = self.dialogue.answer(envelope.posts(), meter)
        for number, head in enumerate(envelope.heads(answers)):
            _set_head(context, number, head)
        return envelope.results(answers)

    def _config_name(self) -> str:
        return str(self.manifest["model"].get("configFile", "model-config.yaml"))


def _post(row: Any, headers: Headers, context: Any, number: int) -> Post:
    """Return one row; by gRPC its answer cannot be sent in parts: the worker would hang."""
    post = Post(row, headers)
    return post if post.by_grpc else replace(post, send=partial(_send, context, number))


def _set_head(context: Any, number: int, answer: Answer) -> None:
    if answer.content_type:
        context.set_response_content_type(number, answer.content_type)
    context.set_response_status(code=answer.status, phrase="", idx=number)
    for name, value in answer.headers.items():
        context.set_response_header(number, name, value)


def _send(context: Any, number: int, part: Answer) -> None:
    """Send a part of one row's answer; TorchServe ends it with what `handle` returns for the row.

    Only the rows that a message names get anything from it, so the others' answers stay whole.
    """
    _set_head(context, number, part)
    ids = {number: context.request_ids[number]}
    send_intermediate_predict_response({number: part.body}, ids, "Prediction success", 200, context)


def _end_streams(context: Any, headers: list[Headers]) -> None:
    for number, own in enumerate(headers):
        if Post({}, own).by_grpc:
            context.set_response_header(number, *LAST_PART)


def _headers(context: Any) -> list[Headers]:
    """Return each request's; an envelope can make more rows than requests."""
    return [context.get_all_request_header(at) for at in range(len(context.request_processor))]
