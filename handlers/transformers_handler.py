"""The TorchServe entry point: connects the worker to the engine."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from handlers.compat.imports import without_openvino_backend

with without_openvino_backend():
    from ts.torch_handler.base_handler import BaseHandler

from handlers.compat.torchserve import log_prediction_time_less_often, read_messages_in_blocks
from handlers.http.request import distinct_names
from handlers.torchserve import start_worker
from handlers.worker_start import prepare_process


class TransformersHandler(BaseHandler):
    """Serves one checkpoint as configured by its model-config.yaml."""

    def initialize(self, context: Any) -> None:
        """Load the model.

        Raises:
            ConfigError: the YAML, the checkpoint or the archive is invalid.
        """
        prepare_process()
        log_prediction_time_less_often()
        read_messages_in_blocks(distinct_names)
        self.context, self.manifest = context, context.manifest
        self.worker = start_worker(context)
        self.engine, self.device = self.worker.engine, self.worker.device
        self.model = self.engine.model
        self.initialized = True

    def handle(self, data: Any, context: Any) -> list[Any]:
        """Process a batch; status and content type are set for each row.

        Args:
            data: the rows of the batch.
            context: TorchServe's context.

        Returns:
            The response body of each row.
        """
        return self.worker.handle(data, context)
