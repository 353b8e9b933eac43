"""How many threads a worker computes with, so that workers do not fight over cores."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from handlers.config.torchserve_section import Torchrun
from handlers.runtime import ranks

logger = logging.getLogger(__name__)

SET_BY_USER = "OMP_NUM_THREADS"
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def share_cores(workers: int, torchrun: Torchrun | None = None) -> int:
    """Let torch and the other engines use this process's share of the cores; returns its size.

    Cores are those that this process may use; those that torchrun starts for one worker divide the
    worker's share. A number that was set from outside stays; under torchrun only the YAML's
    `OMP_NUMBER_THREADS` is one, for TorchServe and torchrun set a 1 where there is none.
    """
    if not _is_set(torchrun):
        torch.set_num_threads(max(1, _cores() // (workers * ranks.count_here())))
    threads = torch.get_num_threads()
    logger.info("Threads of this process: %d", threads)
    return threads


def _is_set(torchrun: Torchrun | None) -> bool:
    """Tell whether somebody chose the number of threads that the environment has."""
    if ranks.by_torchrun():
        return torchrun is not None and torchrun.OMP_NUMBER_THREADS is not None
    return bool(os.environ.get(SET_BY_USER))


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
