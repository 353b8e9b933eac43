"""Computes a part of a model for the requests of another machine.

It imports the handlers of the archive: call `hf_serve.hosts.archives.import_from` first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from hf_serve.handlers.checkpoints.placement import pick_device
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.process.ranks import RequestBroadcast, SharedRequest
from hf_serve.handlers.process.resources import FreedMemory
from hf_serve.handlers.process.threads import set_num_threads
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.worker_start import load_engine, prepare_process
from hf_serve.hosts.archives import config_file

logger = logging.getLogger(__name__)


class Follower:
    """A loaded part of a model, which takes its requests from rank 0 and answers nobody.

    Args:
        folder: the unpacked archive, the same that TorchServe serves.

    Raises:
        ConfigError: the archive does not load.
    """

    def __init__(self, folder: Path, name: str, version: str) -> None:
        prepare_process()
        config = ModelConfig.read(config_file(folder))
        set_num_threads(config.maxWorkers, config.torchrun)
        self._engine = load_engine(folder, config, _device(config))
        self._broadcast = RequestBroadcast()
        # A request that one process refuses and another runs would wait for ever.
        limits = BodyLimits(**self._broadcast.share(None))
        self._dispatcher = Dispatcher(self._engine, name, version, limits)
        self._freed_memory = FreedMemory()

    def run(self) -> None:
        """Compute each batch until rank 0 ends or the accelerator fails."""
        logger.info("This machine has its part of the model.")
        while not self._engine.device_failed:
            try:
                requests = self._broadcast.receive_requests()
            except RuntimeError:
                logger.info("TorchServe's worker has ended.")
                return
            self._compute(requests)

    def _compute(self, requests: Sequence[SharedRequest]) -> None:
        meter, deadline = Meter(), Deadline(self._engine.limits.predict)
        http_requests = [
            self._dispatcher.http_request(
                each.row, each.headers, _send_nothing if each.streams else None
            )
            for each in requests
        ]
        self._dispatcher.dispatch(http_requests, meter, deadline)
        if meter.counts["errors"]:
            self._freed_memory.release()


def _send_nothing(_part: HttpResponse) -> None:
    """Send a part of a response to nobody: rank 0 sends it."""


def _device(config: ModelConfig) -> torch.device:
    """Return the device of this process, chosen as TorchServe does on its machine."""
    if config.deviceType == "cpu":
        return pick_device({})
    return pick_device({"gpu_id": int(os.environ["LOCAL_RANK"])})
