"""How many threads a worker computes with, so that workers do not fight over cores."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

SET_BY_USER = "OMP_NUM_THREADS"
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def share_cores(workers: int) -> int:
    """Let torch and the other engines use this worker's share of the cores; returns its size.

    Cores are those that this process may use. A number that was set from outside stays.
    """
    if not os.environ.get(SET_BY_USER):
        torch.set_num_threads(max(1, _cores() // workers))
    threads = torch.get_num_threads()
    logger.info("Threads of this worker: %d", threads)
    return threads


def _cores() -> int:
    """Return how many cores this process may use, by its affinity and its container's quota."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return min(cores, _quota() or cores)


def _quota() -> int | None:
    """Return a container's quota in whole cores; Linux, control groups 2: "max 100000"."""
    if not QUOTA.is_file():
        return None
    allowed, period = QUOTA.read_text(encoding="utf-8").split()
    return None if allowed == "max" else max(1, int(allowed) // int(period))
