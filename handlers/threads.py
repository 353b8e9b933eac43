"""How many threads a worker computes with, so that workers do not fight over cores."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from handlers import ranks

logger = logging.getLogger(__name__)

SET_BY_USER = "OMP_NUM_THREADS"
SET_BY_TORCHRUN = "1"  # its default for several processes, and TorchServe's for any that it starts
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def share_cores(workers: int) -> int:
    """Let torch and the other engines use this process's share of the cores; returns its size.

    Cores are those that this process may use; those that torchrun starts for one worker divide the
    worker's share. A number that was set from outside stays, under torchrun the YAML's
    `OMP_NUMBER_THREADS`. A 1 does not stay there: it is what every process gets that nobody set
    a number for.
    """
    if not _is_set():
        torch.set_num_threads(max(1, _cores() // (workers * ranks.count_here())))
    threads = torch.get_num_threads()
    logger.info("Threads of this process: %d", threads)
    return threads


def _is_set() -> bool:
    """Tell whether somebody chose a number of threads."""
    number = os.environ.get(SET_BY_USER)
    return bool(number) and not (ranks.by_torchrun() and number == SET_BY_TORCHRUN)


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
