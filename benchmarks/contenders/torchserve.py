"""Serve a model archive with TorchServe."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.contenders.base import Contender
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe

TIMEOUT = 300  # seconds; loading may compile a graph


class TorchServeContender(Contender):
    """A model archive on TorchServe, with the config.properties of this repository.

    Args:
        name: the contender's name.
        archive: the `.mar` file, which names the model; must exist before the start.
        work: folder for the settings and logs.
    """

    def __init__(self, name: str, archive: Path, work: Path) -> None:
        self.name = name
        self.archive = archive
        self._work = work
        self._server: Server | None = None

    def start(self) -> None:
        models = {self.archive.stem: self.archive.name}
        store = self.archive.parent
        self._server = TorchServe(self._work, store, models, timeout=TIMEOUT).start()
        # TorchServe has extracted the archive. The system writes it to disk for up to a minute.
        os.sync()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    @property
    def url(self) -> str:
        return f"{self._running.inference_url}/predictions/{self.archive.stem}"

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics in the format of Prometheus."""
        return self._running.metrics_url

    @property
    def leader(self) -> int:
        return self._running.pid

    @property
    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._server
