"""The server behind KServe's SDK on this machine, in the background."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import httpx

from handlers.http.limits import BodyLimits
from scripts.serving.background import BackgroundServer
from scripts.serving.ports import require_free


class KServeServer(BackgroundServer):
    """A running `python -m hosts.kserve`."""

    title: ClassVar[str] = "KServe's server"
    script: ClassVar[str] = "scripts/serve_kserve.py"
    state_file: ClassVar[str] = "kserve_server.json"

    def is_ready(self) -> bool:
        try:
            return self.get("/v2/health/ready").is_success
        except httpx.TransportError:
            return False

    def model_names(self) -> list[str]:
        return list(self.get("/v1/models").json()["models"])


def start_kserve_server(
    archives: list[Path], workdir: Path, port: int, limits: BodyLimits, *, timeout: float = 300.0
) -> KServeServer:
    """Start KServe's server with archives, and return once every model answers.

    Raises:
        PortInUse: the port is in use.
        BackgroundServerFailed: a model does not load, or not in time; the server is stopped.
    """
    require_free(port)
    options = {
        "--http-port": port,
        "--max-request-size": limits.max_request_bytes,
        "--max-response-size": limits.max_response_bytes,
    }
    arguments = [str(each) for option in options.items() for each in option]
    command = ["-m", "hosts.kserve", *arguments, *map(str, archives)]
    return KServeServer.start(command, workdir.resolve(), {"port": port}, timeout)
