"""The handler that TorchServe loads: the bridge between its worker and the engine."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from ts.metrics.metric_type_enum import MetricTypes
from ts.torch_handler.base_handler import BaseHandler

from handlers.bodies import Post
from handlers.config import ModelConfig
from handlers.devices import pick_device
from handlers.dialogue import Dialogue
from handlers.engine import Engine
from handlers.errors import ConfigError
from handlers.meter import Meter
from handlers.metrics import report
from handlers.quiet import quieten
from handlers.ranks import is_first
from handlers.threads import share_cores

logger = logging.getLogger(__name__)


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
            share_cores(config.maxWorkers)
            self.engine = Engine.load(Path(properties["model_dir"]), config, self.device)
        except ConfigError as error:
            logger.error("Model not loaded. %s", error)
            raise
        self.model = self.engine.model
        self.dialogue = Dialogue(self.engine, config.handler)
        self.initialized = True

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[bytes]:
        """Answer a batch; each row has its own status and content type."""
        start, meter = time.perf_counter(), Meter()
        posts = [Post(row, _headers(context, number)) for number, row in enumerate(data)]
        answers = self.dialogue.answer(posts, meter)
        for number, answer in enumerate(answers):
            context.set_response_content_type(number, answer.content_type)
            context.set_response_status(code=answer.status, phrase="", idx=number)
        if is_first():
            report(context.metrics, meter, time.perf_counter() - start, MetricTypes.GAUGE)
        return [answer.body for answer in answers]

    def _config_name(self) -> str:
        return str(self.manifest["model"].get("configFile", "model-config.yaml"))


def _headers(context: Any, number: int) -> dict[str, Any]:
    headers: dict[str, Any] = context.get_all_request_header(number)
    return headers
