"""Another server, in an environment of its own, led by a process that this one starts and ends."""

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
from handlers.errors import KitError
from scripts.kit.openmp import openmp_environment
from scripts.kit.places import ROOT
from scripts.kit.ports import HOST, free_ports
from scripts.kit.processes import end_group, started_at
from scripts.kit.server_command import OFFLINE

PATIENCE = 300
PAUSE = 0.2


class NotInstalled(KitError):
    """A contender's environment is not there."""

    def __init__(self, name: str, environment: str) -> None:
        super().__init__(
            f"{name} is not installed; run `make {environment}/.ready`,"
            " or name other contenders with --only."
        )


class DidNotStart(KitError):
    """A contender did not begin to answer."""

    def __init__(self, name: str, log: Path) -> None:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        told = next((line for line in reversed(lines) if line.strip()), "it left no word")
        super().__init__(f"{name} did not start: {told[:300]} (log: {log}).")


class Foreign(Contender):
    """A server that is not TorchServe.

    Attributes:
        environment: the folder of its virtual environment, in the repository.
        route: where requests go.
        health: what answers with success once it is ready.

    Args:
        work: takes its log.
    """

    environment: ClassVar[str]
    route: ClassVar[str]
    health: ClassVar[str]

    def __init__(self, work: Path) -> None:
        self._log = work / "servers" / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self, port: int) -> list[str | Path]:
        """Return what the environment's Python is started with."""

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
        end = time.monotonic() + PATIENCE
        while not self._is_healthy():
            if started_at(self.leader) is None or time.monotonic() > end:
                raise DidNotStart(self.name, self._log)
            time.sleep(PAUSE)

    def _is_healthy(self) -> bool:
        url = f"http://{HOST}:{self._port}{self.health}"
        try:
            return httpx.get(url, timeout=5, trust_env=False).is_success
        except httpx.TransportError:
            return False


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's variables, and those with which this kit's own server runs."""
    kept = {name: value for name, value in given.items() if name != "PYTHONPATH"}
    return {**OFFLINE, **openmp_environment(1, kept), **kept}
