"""The TorchServe entry point: connects the worker to the engine."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from handlers.runtime.imports import hide_packages

# The base handler imports OpenVINO's torch.compile backend and with it the whole compiler, which
# adds more than a second to every start. torch finds the backend without that import.
with hide_packages("openvino.torch", silence="ts.torch_handler.base_handler"):
    from ts.torch_handler.base_handler import BaseHandler

from handlers.telemetry.metrics import limit_prediction_time
from handlers.torchserve.message_reader import read_messages
from handlers.torchserve.worker import Worker
from handlers.worker_start import prepare_process


class TransformersHandler(BaseHandler):
    """Serves one checkpoint as configured by its model-config.yaml."""

    def initialize(self, context: Any) -> None:
        """Load the model.

        Raises:
            ConfigError: the YAML, the checkpoint or the archive is invalid.
        """
        prepare_process()
        limit_prediction_time()
        read_messages()
        self.context, self.manifest = context, context.manifest
        self.worker = Worker(context)
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
