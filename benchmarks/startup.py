"""How soon a server answers, and what its worker takes of the memory."""

from __future__ import annotations

import time
from typing import Any

import psutil

from benchmarks.contenders.base import Contender
from scripts.kit.processes import group_members


def first_answer(contender: Contender, inputs: Any) -> float:
    """Start a contender and return the seconds until it has answered a request.

    Raises:
        KitError: when it does not start or does not answer; the caller stops it.
    """
    began = time.monotonic()
    contender.start()
    contender.ask(inputs)
    return time.monotonic() - began


def worker_bytes(leader: int) -> int:
    """Return the memory of the largest Python process of a server, which holds the model.

    Pages that processes share are divided among them (PSS), where the system tells it.
    """
    return max(map(_python_bytes, group_members(leader)), default=0)


def _python_bytes(process: psutil.Process) -> int:
    """Return the memory of a Python process; 0 for another, and for one that ends meanwhile."""
    try:
        memory = process.memory_full_info() if "python" in process.name() else None
    except psutil.NoSuchProcess:
        return 0
    return int(getattr(memory, "pss", memory.rss)) if memory else 0
