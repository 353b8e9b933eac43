"""Ray Serve on this machine: start it with a work folder, find it again, and stop it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from handlers.errors import KitError
from handlers.http.limits import BodyLimits
from hosts.ray_serve.local import LocalSettings
from scripts.kit.ports import HOST, PortInUse, is_free
from scripts.kit.processes import end_group, started_at
from scripts.kit.tracebacks import last_error

STATE_FILE = "ray_server.json"
READY_FILE = "ready.json"
POLL_SECONDS = 0.2
# Process start times follow the system clock, which may be adjusted by this many seconds.
CLOCK_STEP = 5.0
# Variables that would change which code or which Ray the processes use.
DROPPED = frozenset({"PYTHONPATH", "RAY_ADDRESS", "RAY_NAMESPACE"})


class RayServerFailed(KitError):
    """Ray Serve ended, or was not ready in time."""


@dataclass(frozen=True)
class RayServer:
    """A running Ray Serve. Other processes find it by its work folder.

    Attributes:
        pid: the process that started Ray, the leader of the process group.
        started: start time of that process, which distinguishes it from a later one with this id.
        workdir: the state, and `console.log`.
        settings: what the process was started with.
    """

    pid: int
    started: float
    workdir: Path
    settings: dict[str, Any]

    @property
    def inference_url(self) -> str:
        """Base URL of `/predictions/<model>`, `/explanations/<model>` and `/ping`."""
        return f"http://{HOST}:{self.settings['port']}"

    @property
    def scratch(self) -> Path:
        """The folder of Ray's sockets and logs, removed when the server stops."""
        return Path(self.settings["folder"])

    @property
    def address(self) -> str:
        """The address of Ray, for `ray.init`."""
        state = json.loads((self.workdir / READY_FILE).read_text(encoding="utf-8"))
        return str(state["address"])

    def is_alive(self) -> bool:
        """Return whether the server process is running."""
        started = started_at(self.pid)
        return started is not None and abs(started - self.started) < CLOCK_STEP

    def logs(self) -> str:
        """Return what the processes of Ray have logged."""
        files = [*self.workdir.glob("console.log"), *self.scratch.glob("session_*/logs/**/*")]
        texts = (
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(files)
            if path.is_file() and not path.is_symlink()
        )
        return "".join(texts)

    def models(self) -> dict[str, bool]:
        """Return whether each model answers."""
        with httpx.Client(base_url=self.inference_url, timeout=30, trust_env=False) as client:
            names = [each["modelName"] for each in client.get("/models").json()["models"]]
            return {name: client.get(f"/v2/models/{name}/ready").is_success for name in names}

    def stop(self) -> None:
        """Stop the server and all its processes, and wait until they have exited."""
        if started_at(self.pid) is None or self.is_alive():
            end_group(self.pid, timeout=60.0)
        shutil.rmtree(self.scratch, ignore_errors=True)
        for name in (STATE_FILE, READY_FILE):
            (self.workdir / name).unlink(missing_ok=True)

    def save(self) -> None:
        """Write the state file into the work folder, where :meth:`of` reads it."""
        state = json.dumps(asdict(self), default=str, indent=2)
        (self.workdir / STATE_FILE).write_text(state + "\n", encoding="utf-8")

    @classmethod
    def of(cls, workdir: Path) -> RayServer | None:
        """Return the server started in a work folder, or None if it was stopped."""
        file = workdir / STATE_FILE
        if not file.is_file():
            return None
        state = json.loads(file.read_text(encoding="utf-8"))
        return cls(**{**state, "workdir": workdir})


def start_ray_server(
    archives: list[Path],
    workdir: Path,
    port: int,
    limits: BodyLimits,
    *,
    timeout: float = 300.0,
    object_store_bytes: int = 200 << 20,
    num_cpus: int | None = None,
) -> RayServer:
    """Start Ray Serve with archives, and return once every model answers.

    Raises:
        PortInUse: the port is in use.
        RayServerFailed: a model does not load, or not in time; the server is stopped.
    """
    if not is_free(port):
        raise PortInUse(port)
    workdir = workdir.resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / READY_FILE).unlink(missing_ok=True)
    # Not in the work folder: the path of the Unix sockets in it must be short.
    scratch = Path(tempfile.mkdtemp(prefix="ray-"))
    settings = LocalSettings(
        archives=archives,
        port=port,
        num_cpus=num_cpus or os.cpu_count() or 1,
        object_store_bytes=object_store_bytes,
        max_request_bytes=limits.max_request_bytes,
        max_response_bytes=limits.max_response_bytes,
        folder=scratch,
        state=workdir / READY_FILE,
    )
    server = _launch(settings, workdir)
    try:
        _wait(server, timeout)
    except BaseException:
        server.stop()
        raise
    return server


def _launch(settings: LocalSettings, workdir: Path) -> RayServer:
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    with (
        (workdir / "console.log").open("wb") as output,
        tempfile.TemporaryFile() as given,
    ):
        given.write(settings.model_dump_json().encode())
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "hosts.ray_serve.local"],
            cwd=workdir,
            env=kept,
            stdin=given,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    started, document = started_at(process.pid) or 0.0, settings.model_dump(mode="json")
    server = RayServer(process.pid, started, workdir, document)
    server.save()
    return server


def _wait(server: RayServer, timeout: float) -> None:
    end = time.monotonic() + timeout
    while not (server.workdir / READY_FILE).is_file():
        log = (server.workdir / "console.log").read_text(encoding="utf-8", errors="replace")
        if not server.is_alive():
            reason = last_error(log) or "see its log"
            raise RayServerFailed(f"Ray Serve ended: {reason} ({server.workdir / 'console.log'})")
        if time.monotonic() > end:
            raise RayServerFailed(
                f"Not every model answers after {timeout:g} s; its log is"
                f" {server.workdir / 'console.log'}. --timeout waits longer."
            )
        time.sleep(POLL_SECONDS)
