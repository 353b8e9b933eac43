"""What is served from an archive by a TorchServe of its own."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders.base import Contender
from scripts.kit.server import Server
from scripts.kit.torchserve import TorchServe

PATIENCE = 300  # seconds; graphs are compiled when they are loaded


class Archived(Contender):
    """An archive behind TorchServe, with the repository's own config.properties.

    Args:
        name: the contender's name.
        archive: the `.mar`, made before the start; its model has the file's name.
        work: takes the server's settings and logs.
    """

    def __init__(self, name: str, archive: Path, work: Path) -> None:
        self.name = name
        self.archive = archive
        self._work = work
        self._server: Server | None = None

    def start(self) -> None:
        models = {self.archive.stem: self.archive.name}
        store = self.archive.parent
        self._server = TorchServe(self._work, store, models, timeout=PATIENCE).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    @property
    def url(self) -> str:
        return f"{self._running.inference_url}/predictions/{self.archive.stem}"

    @property
    def leader(self) -> int:
        return self._running.pid

    @property
    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._server
