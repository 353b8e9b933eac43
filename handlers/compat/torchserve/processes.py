"""The processes of TorchServe: its Java process, and the workers in the folders of their models."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import psutil

WORKER_SCRIPT = "model_service_worker.py"
FRONTEND = "org.pytorch.serve.ModelServer"


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process is a worker, and no torchrun that starts one.

    Breaks when TorchServe starts its workers with another script.
    """
    try:
        arguments = process.cmdline()[1:]
    except psutil.Error:  # It has ended.
        return False
    script = next((each for each in arguments if not each.startswith("-")), "")
    return Path(script).name == WORKER_SCRIPT


def count_workers() -> int:
    """Return how many worker processes the model of this one has.

    Breaks when TorchServe starts workers in another folder than that of their model.

    Raises:
        OSError: the folder of the model was removed.
    """
    return sum(1 for _ in _workers())


def has_older_worker(process: psutil.Process) -> bool:
    """Return whether the parent of a worker of this model has started another one before it.

    Breaks when TorchServe starts workers in another folder than that of their model, or without a
    PYTHONPATH that tells two names of one folder apart.

    Raises:
        OSError: the folder of the model was removed.
    """
    return any(_is_older(worker, process) for worker in _workers())


def read_config_properties() -> str | None:
    """Return the config.properties of the TorchServe that started this process; None elsewhere.

    TorchServe passes it to no worker, so it is read from the file that TS_CONFIG_FILE names, which
    the worker inherits, or else TorchServe's command.

    Breaks when TorchServe's main class or the option of its command has another name.
    """
    try:
        for process in psutil.Process().parents():
            if FRONTEND in (command := process.cmdline()):
                path = Path(process.cwd(), _config_file(command))
                return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, psutil.Error):
        pass
    return None


def _config_file(command: Sequence[str]) -> str:
    """Return the name of the file in TorchServe's order: the variable, the command, the default."""
    named = (value for name, value in pairwise(command) if name == "-f")
    return os.environ.get("TS_CONFIG_FILE") or next(named, "config.properties")


def _workers() -> Iterator[psutil.Process]:
    folder = str(Path.cwd())
    return (process for process in psutil.process_iter() if _is_worker_in(folder, process))


def _is_worker_in(folder: str, process: psutil.Process) -> bool:
    try:
        return process.cwd() == folder and is_worker(process)
    except psutil.Error:
        return False


def _is_older(worker: psutil.Process, process: psutil.Process) -> bool:
    try:
        started, own = (each.create_time() for each in (worker, process))
        is_sibling = worker.ppid() == process.ppid() and _path(worker) == _path(process)
    except psutil.Error:  # It has ended.
        return False
    return is_sibling and (started, worker.pid) < (own, process.pid)


def _path(worker: psutil.Process) -> str | None:
    """Return the module path that TorchServe gives a worker.

    It has the link to the model's folder, which a folder that is registered under two names has
    twice.
    """
    return worker.environ().get("PYTHONPATH")
