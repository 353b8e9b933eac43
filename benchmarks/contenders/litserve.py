"""LitServe, in an environment of its own, with the checkpoint, dtype and batch size of the kit."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from benchmarks.contenders.base import Contender
from handlers.errors import KitError
from scripts.kit.launch import OFFLINE
from scripts.kit.places import ROOT
from scripts.kit.ports import HOST, free_ports
from scripts.kit.processes import end_group, started_at

ENVIRONMENT = ROOT / ".venv-bench"
PROGRAM = Path(__file__).with_name("litserve_api.py")
BATCH_TIMEOUT = 0.005  # seconds
PATIENCE = 300
PAUSE = 0.2


class NoLitServe(KitError):
    """Its environment is not there."""

    def __init__(self) -> None:
        super().__init__(
            f"LitServe is not installed; run `make {ENVIRONMENT.name}/.ready`,"
            " or name other contenders with --only."
        )


class LitServeFailed(KitError):
    """It did not begin to answer."""

    def __init__(self, log: Path) -> None:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        told = next((line for line in reversed(lines) if line.strip()), "it left no word")
        super().__init__(f"LitServe did not start: {told[:300]} (log: {log}).")


class LitServe(Contender):
    """A sequence classifier behind LitServe.

    Args:
        checkpoint: the model.
        work: takes its log.
        precision: the dtype that it computes in.
        batch: the most rows that it runs together.
    """

    name = "litserve"

    def __init__(self, checkpoint: Path, work: Path, precision: str, batch: int) -> None:
        self.precision = precision
        self._checkpoint, self._batch = checkpoint, batch
        self._log = work / "servers" / "litserve.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        python = ENVIRONMENT / "bin" / "python"
        if not python.is_file():
            raise NoLitServe
        self._port = free_ports().inference
        self._log.parent.mkdir(parents=True, exist_ok=True)
        numbers = map(str, (self._port, self._batch, BATCH_TIMEOUT))
        with self._log.open("wb") as log:
            # -P: the file beside the program that is called litserve.py is not the package.
            self._process = subprocess.Popen(
                [python, "-P", PROGRAM, self._checkpoint, self.precision, *numbers],
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
        return f"http://{HOST}:{self._port}/predict"

    @property
    def leader(self) -> int:
        if self._process is None:
            raise RuntimeError("litserve was not started")
        return self._process.pid

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while not self._is_healthy():
            if started_at(self.leader) is None or time.monotonic() > end:
                raise LitServeFailed(self._log)
            time.sleep(PAUSE)

    def _is_healthy(self) -> bool:
        try:
            answer = httpx.get(f"http://{HOST}:{self._port}/health", timeout=5, trust_env=False)
        except httpx.TransportError:
            return False
        return answer.is_success


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    return {**OFFLINE, **{name: value for name, value in given.items() if name != "PYTHONPATH"}}
