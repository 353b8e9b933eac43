"""How soon a server answers, and what its worker takes of the memory."""

from __future__ import annotations

import time
from typing import Any

import psutil

from benchmarks.contenders.base import Contender
from scripts.kit.processes import members


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
    workers = [each for each in members(leader) if "python" in each.name()]
    return max((_bytes(worker) for worker in workers), default=0)


def _bytes(process: psutil.Process) -> int:
    memory = process.memory_full_info()
    return int(getattr(memory, "pss", memory.rss))
