"""A fork server beside a program that stands for TorchServe, and workers that it is to fork."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hf_serve.hosts.fork_server.start import ForkServer
from tests.waiting import wait_for

# Two modules that start at once; one of them is no part of a Python that starts.
MODULES = ("json", "colorsys")
PROGRAM = (sys.executable, "-IS", "-c", "input()")
WORKER = "model_service_worker.py"
# TorchServe's own module, as the fork server needs it, in a folder that `PYTHONPATH` names.
LOADER = "class TsModelLoader:\n    def load(self):\n        pass\n"
LOAD = "from ts.model_loader import TsModelLoader; TsModelLoader().load(); "


@dataclass
class Running:
    """A fork server that runs.

    Attributes:
        server: how it was started.
        program: what stands for TorchServe.
        folder: the folder of the worker.
        environment: the variables of the server, and of workers.
    """

    server: ForkServer
    program: subprocess.Popen[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(
        self,
        source: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        name: str = WORKER,
    ) -> subprocess.Popen[str]:
        """Start a worker whose script has this source."""
        script = self.folder / name
        script.write_text(source, encoding="utf-8")
        return subprocess.Popen(
            [self.server.python, script, *arguments],
            cwd=self.folder,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, source: str, *arguments: str, **options: str) -> tuple[int, str, str]:
        """Run a worker, and return its exit code and what it wrote."""
        process = self.start(source, *arguments, environment=options)
        output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    def process(self) -> psutil.Process:
        """Return the process of the fork server, once it is there."""
        wait_for(lambda: self._children())
        return self._children()[0]

    def log(self) -> str:
        """Return what the server has written."""
        return self.server.log.read_text("utf-8") if self.server.log.exists() else ""

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self.program.pid).children()


@contextmanager
def running(
    folder: Path,
    modules: Sequence[str] = MODULES,
    slots: int = 2,
    package: Path | None = None,
    **variables: str,
) -> Iterator[Running]:
    """Run a fork server until the end of the context."""
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", **variables}
    with tempfile.TemporaryDirectory(prefix="fork-") as short:
        server = ForkServer(Path(short), folder / "fork_server.log", modules, package, slots)
        assert server.write_launcher()
        program = subprocess.Popen(
            server.command(PROGRAM), stdin=subprocess.PIPE, text=True, env=environment
        )
        wait_for((Path(short) / "fork.sock").exists)
        try:
            yield Running(server, program, folder, environment)
        finally:
            program.communicate("\n", timeout=60)


def write_loader(folder: Path) -> None:
    """Write a module for workers that load a model."""
    (folder / "ts").mkdir()
    (folder / "ts" / "__init__.py").touch()
    (folder / "ts" / "model_loader.py").write_text(LOADER, encoding="utf-8")
