"""Measure the startup time of a server and the memory of its Python processes."""

from __future__ import annotations

import time
from typing import Any

import psutil

from benchmarks.contenders.base import Contender
from hf_serve.scripts.serving.processes import group_members


def first_answer(contender: Contender, inputs: Any) -> float:
    """Start a contender and return the seconds until its first response.

    Raises:
        KitError: it does not start or respond; the caller must stop it.
    """
    started = time.monotonic()
    contender.start()
    contender.ask(inputs)
    return time.monotonic() - started


def python_bytes(leader: int) -> int:
    """Return the memory of the Python processes of a server, its fork server included.

    It is the sum of their proportional set sizes (PSS), in which a page that processes share
    counts once.
    """
    return sum(map(_python_bytes, group_members(leader)))


def _python_bytes(process: psutil.Process) -> int:
    """Return the memory of a Python process; 0 for other processes and those that have exited."""
    try:
        memory = process.memory_full_info() if "python" in process.name() else None
    except psutil.NoSuchProcess:
        return 0
    return int(memory.pss) if memory else 0
