"""A running TorchServe: its addresses, logs, model status and shutdown."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import psutil

from hf_serve.handlers.compat.torchserve import is_worker
from hf_serve.scripts.archives.verification import SignedStore
from hf_serve.scripts.serving.logs import plain_line
from hf_serve.scripts.serving.ports import HOST, Ports
from hf_serve.scripts.serving.processes import (
    DamagedState,
    end_group,
    group_members,
    is_running,
    read_state,
    started_at,
)
from hf_serve.scripts.serving.tokens import KEY_FILE, Tokens, TokenType

STATE_FILE = "server.json"


@cache
def _client() -> httpx.Client:
    """Return the client of this process: models are polled, and a new one takes 25 ms to create."""
    return httpx.Client(timeout=30.0, trust_env=False)


@dataclass(frozen=True)
class Server:
    """A running server. Other processes find it by its work folder.

    Attributes:
        pid: the Java process, the leader of the process group of all workers.
        started: start time of that process, which distinguishes it from a later one with this id.
        models: archive file names by model name.
        workdir: the settings and, in `logs/`, the logs.
        scratch: temporary folder for unpacked archives, removed when the server stops.
        public_key: the key that its archives are signed with; None for any archives.
        left_out: why archives are not served that were to be, by the name of their model.
        model_store: the folder of its archives; None where the state file does not say.
    """

    pid: int
    started: float
    models: dict[str, str]
    ports: Ports
    workdir: Path
    scratch: Path
    public_key: Path | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    model_store: Path | None = None

    def signed_store(self, source: Path) -> SignedStore | None:
        """Return the model store of a server with a key, given the folder of archives."""
        if self.public_key is None:
            return None
        return SignedStore(self.scratch / "signed", source, self.public_key)

    @property
    def inference_url(self) -> str:
        """Base URL of `/predictions/<model>`, `/explanations/<model>` and `/ping`."""
        return f"http://{HOST}:{self.ports.inference}"

    @property
    def management_url(self) -> str:
        """Base URL of `/models/<model>`."""
        return f"http://{HOST}:{self.ports.management}"

    @property
    def metrics_url(self) -> str:
        """The URL to scrape with Prometheus."""
        return f"http://{HOST}:{self.ports.metrics}/metrics"

    @property
    def grpc_port(self) -> int:
        """The port of the gRPC inference API."""
        return self.ports.grpc_inference

    def logs(self) -> str:
        """Return all log files of the server and its workers."""
        files = sorted((self.workdir / "logs").glob("*.log"))
        return "".join(self.log(path.name) for path in files)

    def log(self, name: str) -> str:
        """Return a log file such as ts_log.log or model_log.log, or "" if it does not exist yet."""
        path = self.workdir / "logs" / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return "".join(
            f"{plain_line(line)}\n" for line in text.removesuffix("\n").split("\n") if text
        )

    def is_alive(self) -> bool:
        """Return whether the server process is running."""
        return is_running(self.pid, self.started)

    def is_ready(self, model: str) -> bool:
        """Return whether a worker of a model is ready."""
        workers = [worker for version in self.describe(model) for worker in version["workers"]]
        return any(worker["status"] == "READY" for worker in workers)

    def describe(self, model: str, version: str = "") -> list[dict[str, Any]]:
        """Return TorchServe's description of the default version of a model.

        Args:
            version: another version, or `all` of them.

        Returns:
            A description of each version; empty if unavailable.
        """
        url = f"{self.management_url}/models/{model}/{version}".removesuffix("/")
        try:
            answer = _client().get(url, headers=self.credentials("management"))
        except httpx.TransportError:
            return []
        return list(answer.json()) if answer.is_success else []

    def workers(self) -> list[psutil.Process]:
        """Return the processes that have loaded models or load them."""
        return [process for process in group_members(self.pid) if is_worker(process)]

    def credentials(self, kind: TokenType) -> dict[str, str]:
        """Return the authorization header of a kind of call, if token authorization is on."""
        keys = self.workdir / KEY_FILE
        return Tokens(keys if keys.is_file() else None, self.management_url).header(kind)

    def stop(self) -> None:
        """Stop the server and all its processes, and wait until they have exited."""
        if started_at(self.pid) is None or self.is_alive():
            end_group(self.pid)
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.workdir / STATE_FILE).unlink(missing_ok=True)

    def save(self) -> None:
        """Write the state file into the work folder, where :meth:`of` reads it."""
        state = json.dumps(asdict(self), default=str, indent=2)
        (self.workdir / STATE_FILE).write_text(state + "\n", encoding="utf-8")

    @classmethod
    def of(cls, workdir: Path) -> Server | None:
        """Return the server started in a work folder, or None if it was stopped."""
        if not (workdir / STATE_FILE).is_file():
            return None
        state = read_state(workdir / STATE_FILE)
        key, store = state.get("public_key"), state.get("model_store")
        try:
            converted = {
                "workdir": workdir,
                "scratch": Path(state["scratch"]),
                "public_key": Path(key) if key else None,
                "model_store": Path(store) if store else None,
                "ports": Ports(**state["ports"]),
            }
            return cls(**{**state, **converted})
        except (TypeError, KeyError):
            raise DamagedState(workdir / STATE_FILE) from None


# Seconds to wait for requests at most.
DRAIN_SECONDS = 30.0
# Seconds between two looks, and the CPU time between them that a worker without requests stays
# below: the kernel counts CPU time in steps of 10 ms.
INTERVAL, IDLE = 0.5, 0.03
# Looks in a row without a request.
LOOKS = 2


def drain(server: Server, timeout: float = DRAIN_SECONDS) -> bool:
    """Wait until no request waits for a worker, and no worker computes.

    TorchServe tells how many requests wait, but not how many run: a worker that runs some uses CPU
    time, itself or in the process of its engine. TorchServe cannot be told to take no new requests.

    Args:
        server: a server; one that has ended has no requests.

    Returns:
        Whether every request was answered in time.
    """
    deadline = time.monotonic() + timeout
    looks, before = 0, _cpu_seconds(server)
    while looks < LOOKS and server.is_alive():
        if time.monotonic() >= deadline:
            return False
        time.sleep(INTERVAL)
        now = _cpu_seconds(server)
        is_idle = abs(now - before) < IDLE and not _waiting(server)
        looks, before = (looks + 1 if is_idle else 0), now
    return True


def _waiting(server: Server) -> int:
    """Return how many requests wait in the queues of the models."""
    versions = [each for model in server.models for each in server.describe(model, version="all")]
    return sum(each.get("jobQueueStatus", {}).get("pendingRequests", 0) for each in versions)


def _cpu_seconds(server: Server) -> float:
    """Return the CPU time of the workers and of the processes that they have started."""
    processes = {
        each.pid: each for worker in server.workers() for each in [worker, *_children(worker)]
    }
    return sum(map(_cpu_seconds_of, processes.values()))


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _cpu_seconds_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
