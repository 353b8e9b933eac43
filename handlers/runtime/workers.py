"""The worker processes of a model; TorchServe starts them in the model's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

WORKER_SCRIPT = "model_service_worker.py"


def count_workers() -> int:
    """Return how many worker processes this model has.

    Raises:
        OSError: the folder of the model was removed.
    """
    return sum(1 for _ in _workers())


def has_older_worker(process: psutil.Process) -> bool:
    """Return whether the parent of a worker of this model has started another one before it.

    Raises:
        OSError: the folder of the model was removed.
    """
    return any(_is_older(worker, process) for worker in _workers())


def _workers() -> Iterator[psutil.Process]:
    folder = str(Path.cwd())
    return (process for process in psutil.process_iter() if _is_worker_in(folder, process))


def _is_worker_in(folder: str, process: psutil.Process) -> bool:
    try:
        return process.cwd() == folder and _script(process.cmdline()) == WORKER_SCRIPT
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


def _script(command: list[str]) -> str:
    """Return the name of the script that Python runs; torchrun has that of its workers later."""
    return next((Path(each).name for each in command[1:] if not each.startswith("-")), "")
