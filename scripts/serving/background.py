"""Servers without TorchServe, or in front of it, in the background: found by their work folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx
import psutil

from hf_serve.handlers.errors import KitError
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.hosts.ray_serve.local import LocalSettings
from hf_serve.hosts.tracebacks import last_error
from hf_serve.scripts.installation import command_line
from hf_serve.scripts.serving.ports import HOST, require_free
from hf_serve.scripts.serving.processes import (
    DamagedState,
    end_group,
    is_running,
    read_state,
    started_at,
)
from hf_serve.scripts.serving.server import Server

CONSOLE = "console.log"
POLL_SECONDS = 0.2
STOP_SECONDS = 90.0
# Variables that would change which code the processes use.
DROPPED = frozenset({"PYTHONPATH", "RAY_ADDRESS", "RAY_NAMESPACE"})


class BackgroundServerFailed(KitError):
    """A server ended, or was not ready in time."""


@dataclass(frozen=True)
class BackgroundServer:
    """A running server. Other processes find it by its work folder.

    Attributes:
        title: what messages call it.
        verbs: the verbs of `hf-serve` before `start` and `stop`.
        state_file: the file in the work folder that names the process.
        ready_path: the path that answers with success once every model does.
        pid: the process, the leader of the process group.
        started: its start time, which distinguishes it from a later one with this id.
        workdir: the state, and the log `console.log`.
        settings: what it was started with; `port` is the port of HTTP.
    """

    title: ClassVar[str]
    verbs: ClassVar[tuple[str, ...]]
    state_file: ClassVar[str]
    ready_path: ClassVar[str]

    pid: int
    started: float
    workdir: Path
    settings: dict[str, Any]

    @property
    def inference_url(self) -> str:
        """Base URL of `/predictions/<model>`, `/explanations/<model>` and `/ping`."""
        return f"http://{HOST}:{self.settings['port']}"

    @property
    def console(self) -> Path:
        """The log of the process."""
        return self.workdir / CONSOLE

    @property
    def log(self) -> Path:
        """Where messages of models are."""
        return self.console

    def is_ready(self) -> bool:
        """Return whether every model answers."""
        try:
            return self.get(self.ready_path).is_success
        except httpx.TransportError:
            return False

    def model_names(self) -> list[str]:
        """Return the names of the models."""
        return [each["modelName"] for each in self.get("/models").json()["models"]]

    def models(self) -> dict[str, bool]:
        """Return whether each model answers."""
        return {
            name: self.get(f"/v2/models/{name}/ready").is_success for name in self.model_names()
        }

    def get(self, path: str) -> httpx.Response:
        """Return the response to a GET request."""
        return httpx.get(self.inference_url + path, timeout=30, trust_env=False)

    def is_alive(self) -> bool:
        """Return whether the server process is running."""
        return is_running(self.pid, self.started)

    def save(self) -> None:
        """Write which process it is to its work folder."""
        state = json.dumps(asdict(self), default=str, indent=2)
        (self.workdir / self.state_file).write_text(state + "\n", encoding="utf-8")

    def stop(self) -> None:
        """Stop the server and all its processes, and wait until they have exited."""
        if started_at(self.pid) is None or self.is_alive():
            end_group(self.pid, timeout=STOP_SECONDS)
        (self.workdir / self.state_file).unlink(missing_ok=True)

    @classmethod
    def of(cls, workdir: Path) -> Self | None:
        """Return the server started in a work folder, or None if it was stopped."""
        file = workdir / cls.state_file
        if not file.is_file():
            return None
        try:
            return cls(**{**read_state(file), "workdir": workdir})
        except TypeError:
            raise DamagedState(file) from None

    @classmethod
    def running(cls, workdir: Path) -> Self:
        """Return the server started in a work folder.

        Raises:
            KitError: it is not running.
        """
        server = cls.of(workdir)
        if server is None or not server.is_alive():
            start = command_line(*cls.verbs, "start")
            raise KitError(f"{cls.title} is not running; `{start}` starts it.")
        return server

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        workdir: Path,
        settings: dict[str, Any],
        timeout: float,
        given: str = "",
    ) -> Self:
        """Start a server, and return once every model answers.

        Args:
            command: the arguments of Python.
            workdir: the work folder, where the state file is written.
            settings: what the state file says of it.
            timeout: seconds until every model must answer.
            given: what the process reads from its standard input.

        Raises:
            BackgroundServerFailed: a model does not load, or not in time; the server is stopped.
        """
        server = cls.launch(command, workdir, settings, given)
        server.wait_until_ready(timeout)
        return server

    @classmethod
    def launch(
        cls, command: Sequence[str], workdir: Path, settings: dict[str, Any], given: str = ""
    ) -> Self:
        """Start a server without waiting for it; the arguments are as in `start`."""
        workdir.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
        with (workdir / CONSOLE).open("wb") as output, tempfile.TemporaryFile() as source:
            source.write(given.encode())
            source.seek(0)
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=workdir,
                env=kept,
                stdin=source,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            server = cls(process.pid, started_at(process.pid) or 0.0, workdir, settings)
            server.save()
        except BaseException:
            # Nobody would find it.
            process.kill()
            raise
        return server

    def wait_until_ready(self, timeout: float) -> None:
        """Return once every model answers.

        Raises:
            BackgroundServerFailed: a model does not load, or not in time; the server is stopped.
        """
        try:
            self._wait(timeout)
        except BaseException:
            self.stop()
            raise

    def _wait(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while not self.is_ready():
            if not self.is_alive():
                reason = _reason(self.console.read_text(encoding="utf-8", errors="replace"))
                raise BackgroundServerFailed(f"{self.title} ended: {reason} ({self.console})")
            if time.monotonic() > end:
                raise BackgroundServerFailed(
                    f"Not every model answers after {timeout:g} s; the log of {self.title} is"
                    f" {self.console}. --timeout waits longer."
                )
            time.sleep(POLL_SECONDS)


def _reason(log: str) -> str:
    """Return the last error in a log, or its last line."""
    return last_error(log) or next(iter(log.strip().splitlines()[-1:]), "its log is empty")


class KServeServer(BackgroundServer):
    """A running `python -m hf_serve.hosts.kserve`."""

    title: ClassVar[str] = "KServe's server"
    verbs: ClassVar[tuple[str, ...]] = ("kserve",)
    state_file: ClassVar[str] = "kserve_server.json"
    ready_path: ClassVar[str] = "/v2/health/ready"

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
    command = ["-m", "hf_serve.hosts.kserve", *arguments, *map(str, archives)]
    return KServeServer.start(command, workdir.resolve(), {"port": port}, timeout)


class OneUrl(BackgroundServer):
    """A running `python -m hf_serve.hosts.asgi` in front of TorchServe: all models at one URL."""

    title: ClassVar[str] = "The server at one URL"
    verbs: ClassVar[tuple[str, ...]] = ()
    state_file: ClassVar[str] = "one_url.json"
    ready_path: ClassVar[str] = "/v2/health/live"


ONE_URL_SECONDS = 60.0


def start_one_url(
    torchserve: Server,
    port: int,
    limits: BodyLimits,
    api_key_file: Path | None = None,
    *,
    watch: Path | None = None,
    limits_of_models: Sequence[str] = (),
    timeout: float | None = ONE_URL_SECONDS,
) -> OneUrl:
    """Start the server at one URL in front of a TorchServe, and return once it answers.

    Args:
        torchserve: the running TorchServe.
        port: the port of the server.
        limits: the limits of bodies.
        api_key_file: a file with API keys; None for none.
        watch: TorchServe's model store, whose archives are registered as they come.
        limits_of_models: options of models on demand, such as `--models-max`.
        timeout: seconds until it must answer; None does not wait. TorchServe may still be starting
            then, unless models are on demand.

    Raises:
        PortInUse: the port is in use.
        BackgroundServerFailed: it does not start; it is stopped.
    """
    require_free(port)
    workdir = torchserve.workdir.resolve()
    options: dict[str, object] = {
        "--port": port,
        "--inference": torchserve.inference_url,
        "--management": torchserve.management_url,
        "--metrics": torchserve.metrics_url,
        "--workdir": workdir,
        "--max-request-size": limits.max_request_bytes,
    }
    if api_key_file:
        options["--api-key-file"] = api_key_file.resolve()
    if watch:
        options["--watch"] = watch.resolve()
    arguments = [str(each) for option in options.items() for each in option]
    arguments += limits_of_models
    one_url = OneUrl.launch(["-m", "hf_serve.hosts.asgi", *arguments], workdir, {"port": port})
    if timeout is not None:
        one_url.wait_until_ready(timeout)
    return one_url


# The log of a server without TorchServe, in the folder of logs of its work folder.
ASGI_LOG = Path("logs") / "asgi.log"


class AsgiServer(BackgroundServer):
    """A running `hf-serve run --host asgi`, in a terminal or in the background of a shell."""

    title: ClassVar[str] = "The server without TorchServe"
    verbs: ClassVar[tuple[str, ...]] = ()
    state_file: ClassVar[str] = "asgi_server.json"
    ready_path: ClassVar[str] = "/v2/health/ready"

    @property
    def log(self) -> Path:
        return self.workdir / ASGI_LOG

    def problems(self) -> dict[str, str | None]:
        """Return why each model does not answer, None where it does; empty while none does."""
        path = self.settings.get("api_key_file")
        keys = Path(path).read_text("utf-8").split() if path and Path(path).is_file() else []
        headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
        url = f"{self.inference_url}/v1/models"
        try:
            answer = httpx.get(url, headers=headers, timeout=30, trust_env=False)
        except httpx.TransportError:
            return {}
        models = answer.json()["data"] if answer.is_success else []
        return {each["id"]: self._problem(each) for each in models}

    @staticmethod
    def _problem(model: dict[str, str]) -> str | None:
        return model.get("error") or (model["state"] if model["state"] == "failed" else None)

    def stop(self) -> None:
        # The shell that started it may have given its group to other programs, too.
        if self.is_alive():
            process = psutil.Process(self.pid)
            process.terminate()
            end = time.monotonic() + STOP_SECONDS
            # It stays as a zombie where the program that started it does not wait for it.
            while self.is_alive() and time.monotonic() < end:
                time.sleep(POLL_SECONDS)
            if self.is_alive():
                process.kill()
        (self.workdir / self.state_file).unlink(missing_ok=True)


def record_asgi_server(workdir: Path, port: int, api_key_file: Path | None) -> AsgiServer:
    """Write that this process becomes the server without TorchServe of a work folder."""
    (workdir / ASGI_LOG).parent.mkdir(parents=True, exist_ok=True)
    settings = {"port": port, "api_key_file": api_key_file and str(api_key_file.resolve())}
    pid = os.getpid()
    server = AsgiServer(pid, started_at(pid) or 0.0, workdir.resolve(), settings)
    server.save()
    return server


READY_FILE = "ready.json"


class RayServer(BackgroundServer):
    """A running Ray Serve, whose processes end with the one that started it."""

    title: ClassVar[str] = "Ray Serve"
    verbs: ClassVar[tuple[str, ...]] = ("ray",)
    state_file: ClassVar[str] = "ray_server.json"

    @property
    def scratch(self) -> Path:
        """The folder of Ray's sockets and logs, removed when the server stops."""
        return Path(self.settings["folder"])

    @property
    def log(self) -> Path:
        return self.scratch

    @property
    def address(self) -> str:
        """The address of Ray, for `ray.init`."""
        state = json.loads((self.workdir / READY_FILE).read_text(encoding="utf-8"))
        return str(state["address"])

    def is_ready(self) -> bool:
        return (self.workdir / READY_FILE).is_file()

    def logs(self) -> str:
        """Return what the processes of Ray have logged."""
        files = [*self.workdir.glob(CONSOLE), *self.scratch.glob("session_*/logs/**/*")]
        texts = (
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(files)
            if path.is_file() and not path.is_symlink()
        )
        return "".join(texts)

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.workdir / READY_FILE).unlink(missing_ok=True)


def start_ray_server(
    archives: list[Path],
    workdir: Path,
    port: int,
    limits: BodyLimits,
    *,
    public_key: Path | None = None,
    timeout: float = 300.0,
    object_store_bytes: int = 200 << 20,
) -> RayServer:
    """Start Ray Serve with archives, and return once every model answers.

    Raises:
        PortInUse: the port is in use.
        BackgroundServerFailed: a model does not load, or not in time; the server is stopped.
    """
    require_free(port)
    workdir = workdir.resolve()
    (workdir / READY_FILE).unlink(missing_ok=True)
    settings = LocalSettings(
        archives=archives,
        port=port,
        num_cpus=os.cpu_count() or 1,
        object_store_bytes=object_store_bytes,
        max_request_bytes=limits.max_request_bytes,
        max_response_bytes=limits.max_response_bytes,
        # Not in the work folder: the path of the Unix sockets in it must be short.
        folder=Path(tempfile.mkdtemp(prefix="ray-")),
        state=workdir / READY_FILE,
        public_key=public_key and public_key.resolve(),
    )
    return RayServer.start(
        ["-m", "hf_serve.hosts.ray_serve.local"],
        workdir,
        settings.model_dump(mode="json"),
        timeout,
        settings.model_dump_json(),
    )
