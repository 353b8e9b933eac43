"""Processes with the command lines and the working folder of TorchServe's workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

SCRIPT = "model_service_worker.py"
SOCKET = ("--sock-type", "unix", "--sock-name", "/tmp/.ts.sock.9000")


@contextmanager
def running_workers(folder: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Run workers of the model in a folder until the end of the context."""
    with ExitStack() as stack:
        processes = [_start(folder, SCRIPT, *SOCKET) for _ in range(count)]
        for process in processes:
            stack.callback(end, process)
        yield processes


@contextmanager
def running_launcher(folder: Path) -> Iterator[None]:
    """Run a process that names a worker's script later in its command, as torchrun does."""
    process = _start(folder, "torchrun", "--nproc-per-node", "1", SCRIPT, *SOCKET)
    try:
        yield
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """End a process that this module started."""
    process.communicate()


def _start(folder: Path, script: str, *arguments: str) -> subprocess.Popen[str]:
    (folder / script).write_text("print(flush=True)\ninput()\n", encoding="utf-8")
    process = subprocess.Popen(
        # Without the modules of this environment it starts at once.
        [sys.executable, "-I", "-S", folder / script, *arguments],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process
