"""A process that serves archives behind KServe's SDK, in its environment."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from scripts.kit.places import ROOT
from scripts.kit.ports import free_ports
from tests.e2e.asking import CLIENT, Question

KSERVE_PYTHON = ROOT / ".venv-kserve" / "bin" / "python"
SECONDS = 300


@dataclass(frozen=True)
class KServeServer:
    """A running server; `url` is its base URL."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def ask(self, question: Question) -> httpx.Response:
        return CLIENT.post(
            self.url + question.path, content=question.body, headers=question.headers
        )

    def post(self, path: str, body: Any) -> httpx.Response:
        return CLIENT.post(self.url + path, json=body)

    def get(self, path: str) -> httpx.Response:
        return CLIENT.get(self.url + path)


def command(*arguments: Any) -> list[str]:
    return [str(KSERVE_PYTHON), "-m", "hosts.kserve", *map(str, arguments)]


@contextmanager
def serving(folder: Path, *arguments: Any) -> Iterator[KServeServer]:
    """Serve archives until the block ends; the log is in a folder."""
    port, log = free_ports().inference, folder / "kserve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(*arguments, "--http-port", port), cwd=ROOT, stdout=output, stderr=output
        )
    server = KServeServer(process, f"http://127.0.0.1:{port}", log)
    try:
        _wait_until_ready(server)
        yield server
    finally:
        process.terminate()
        process.wait(SECONDS)


def _wait_until_ready(server: KServeServer) -> None:
    end = time.monotonic() + SECONDS
    while True:
        assert server.process.poll() is None, server.log.read_text("utf-8")
        assert time.monotonic() < end
        try:
            if server.get("/v2/health/ready").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
