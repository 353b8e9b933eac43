"""A process that serves archives behind KServe's SDK, in its environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from scripts.serving.background import KServeServer
from scripts.serving.ports import free_ports
from tests.e2e.asking import CLIENT, Question
from tests.hosts.host_python import KSERVE_PYTHON, run_successfully


class AskedServer(KServeServer):
    """A running server, and requests to it."""

    def ask(self, question: Question) -> httpx.Response:
        url = self.inference_url + question.path
        return CLIENT.post(url, content=question.body, headers=question.headers)

    def post(self, path: str, body: Any) -> httpx.Response:
        return CLIENT.post(self.inference_url + path, json=body)


@contextmanager
def serving(folder: Path, store: Path) -> Iterator[AskedServer]:
    """Serve the archives of a store until the block ends; the log is in a folder."""
    place = ("--workdir", folder)
    options = ("--model-store", store, "--port", free_ports().inference, *place)
    run_successfully(KSERVE_PYTHON, "serve_kserve", "start", *options)
    server = AskedServer.of(folder)
    assert server
    try:
        yield server
    finally:
        run_successfully(KSERVE_PYTHON, "serve_kserve", "stop", *place)
    assert not server.is_alive()
