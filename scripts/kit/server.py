"""A TorchServe that runs: where it listens, what it says of its models, and its end."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from scripts.kit.ports import HOST, Ports
from scripts.kit.processes import end_group, started_at

FACTS = "server.json"
# Seconds by which the system's clock may be set right: when a process began is told by that clock.
CLOCK_STEP = 5.0


@cache
def _client() -> httpx.Client:
    """Return the client of this process: models are polled, and a new one takes 25 ms to create."""
    return httpx.Client(timeout=30.0, trust_env=False)


@dataclass(frozen=True)
class Server:
    """What is known of a server; another process finds it again by its work folder.

    Attributes:
        pid: its Java process, which leads the process group of all its workers.
        started: when that process began; a later one of the same id is another.
        models: its archives' file names by model name.
        ports: where it listens.
        workdir: its settings and, in `logs/`, its logs.
        scratch: where it unpacks archives; goes when the server stops.
    """

    pid: int
    started: float
    models: dict[str, str]
    ports: Ports
    workdir: Path
    scratch: Path

    @property
    def inference_url(self) -> str:
        """Where to ask: `/predictions/<model>`, `/explanations/<model>`, `/ping`."""
        return f"http://{HOST}:{self.ports.inference}"

    @property
    def management_url(self) -> str:
        """Where models are described: `/models/<model>`."""
        return f"http://{HOST}:{self.ports.management}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus reads: the whole URL."""
        return f"http://{HOST}:{self.ports.metrics}/metrics"

    @property
    def grpc_port(self) -> int:
        """The port of gRPC inference."""
        return self.ports.grpc_inference

    def logs(self) -> str:
        """Return everything that the server and its workers have logged."""
        files = sorted((self.workdir / "logs").glob("*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)

    def log(self, name: str) -> str:
        """Return one of its logs: ts_log.log, model_log.log ...; empty while it is not there."""
        path = self.workdir / "logs" / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def is_alive(self) -> bool:
        """Whether the server's process still runs."""
        began = started_at(self.pid)
        return began is not None and abs(began - self.started) < CLOCK_STEP

    def is_ready(self, model: str) -> bool:
        """Whether a worker of a model waits for requests."""
        workers = [worker for version in self.describe(model) for worker in version["workers"]]
        return any(worker["status"] == "READY" for worker in workers)

    def describe(self, model: str) -> list[dict[str, Any]]:
        """Return what TorchServe says of a model, a dict a version; empty while it says nothing."""
        url = f"{self.management_url}/models/{model}"
        try:
            answer = _client().get(url, headers=self._credentials())
        except httpx.TransportError:
            return []
        return list(answer.json()) if answer.is_success else []

    def stop(self) -> None:
        """End the server and everything that it started; all is gone when this returns."""
        if started_at(self.pid) is None or self.is_alive():
            end_group(self.pid)
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.workdir / FACTS).unlink(missing_ok=True)

    def save(self) -> None:
        """Write these facts into the work folder, where :meth:`of` finds them."""
        facts = json.dumps(asdict(self), default=str, indent=2)
        (self.workdir / FACTS).write_text(facts + "\n", encoding="utf-8")

    @classmethod
    def of(cls, workdir: Path) -> Server | None:
        """Return the server that was started in a work folder and not stopped, or None."""
        if not (workdir / FACTS).is_file():
            return None
        facts = json.loads((workdir / FACTS).read_text(encoding="utf-8"))
        places = {"workdir": workdir, "scratch": Path(facts["scratch"])}
        return cls(**{**facts, **places, "ports": Ports(**facts["ports"])})

    def _credentials(self) -> dict[str, str]:
        """Return the header that is needed where tokens are on."""
        keys = self.workdir / "key_file.json"
        if not keys.is_file():
            return {}
        key = json.loads(keys.read_text(encoding="utf-8"))["management"]["key"]
        return {"Authorization": f"Bearer {key}"}
