"""Run another server in a separate virtual environment."""

from __future__ import annotations

import os
import subprocess
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import httpx

from benchmarks.contenders.base import Contender
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.openmp import openmp_environment
from hf_serve.scripts.serving.ports import HOST, free_ports
from hf_serve.scripts.serving.processes import end_group, started_at

TIMEOUT = 300
POLL_INTERVAL = 0.2


class NotInstalled(KitError):
    """The virtual environment of a contender is missing."""

    def __init__(self, name: str, environment: str) -> None:
        super().__init__(
            f"{name} is not installed; run `make {environment}/.ready`,"
            " or name other contenders with --only."
        )


class DidNotStart(KitError):
    """A contender did not become ready."""

    def __init__(self, name: str, log: Path) -> None:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "its log is empty")
        super().__init__(f"{name} did not start: {last[:300]} (log: {log}).")


class ExternalContender(Contender):
    """A server that is not TorchServe.

    Attributes:
        environment: the folder of its virtual environment in the repository.
        route: the path for requests.
        health: a path that returns success once the server is ready.

    Args:
        work: folder for the log.
    """

    environment: ClassVar[str]
    route: ClassVar[str]
    health: ClassVar[str]

    def __init__(self, work: Path) -> None:
        self._log = work / "servers" / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self, port: int) -> list[str | Path]:
        """Return the arguments for the Python interpreter of the environment."""

    def start(self) -> None:
        python = ROOT / self.environment / "bin" / "python"
        if not python.is_file():
            raise NotInstalled(self.name, self.environment)
        self._port = free_ports().inference
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, *self.command(self._port)],
                env=_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process is not None:
            end_group(self._process.pid)
            self._process = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}{self.route}"

    @property
    def leader(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    def _wait(self) -> None:
        end = time.monotonic() + TIMEOUT
        while not self._is_healthy():
            if started_at(self.leader) is None or time.monotonic() > end:
                raise DidNotStart(self.name, self._log)
            time.sleep(POLL_INTERVAL)

    def _is_healthy(self) -> bool:
        url = f"http://{HOST}:{self._port}{self.health}"
        try:
            return httpx.get(url, timeout=5, trust_env=False).is_success
        except httpx.TransportError:
            return False


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's variables with the settings that this kit's server also uses."""
    kept = {name: value for name, value in given.items() if name != "PYTHONPATH"}
    return {**OFFLINE, **openmp_environment(1, kept), **kept}
