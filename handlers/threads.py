"""How many threads a worker computes with, so that workers do not fight over cores."""

from __future__ import annotations

import logging
import os

import torch

logger = logging.getLogger(__name__)

SET_BY_USER = "OMP_NUM_THREADS"


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
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
