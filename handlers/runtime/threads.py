"""The number of threads of a worker, so that several workers do not oversubscribe the cores."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from handlers.config.torchserve_section import Torchrun
from handlers.runtime import ranks

logger = logging.getLogger(__name__)

OMP_VARIABLE = "OMP_NUM_THREADS"
CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def set_num_threads(workers: int, torchrun: Torchrun | None = None) -> int:
    """Set the number of threads of torch and the other inference engines, and return it.

    The available cores are divided among workers and the processes of each worker. A number that
    the user set is kept: `OMP_NUM_THREADS`, or under torchrun only the YAML's
    `OMP_NUMBER_THREADS`, because TorchServe and torchrun set the variable to 1 by default.

    Args:
        workers: how many workers serve the model.
        torchrun: the `torchrun` section of the YAML.
    """
    if not _is_set_by_user(torchrun):
        torch.set_num_threads(max(1, _cores() // (workers * ranks.local_world_size())))
    threads = torch.get_num_threads()
    logger.info("Threads of this process: %d", threads)
    return threads


def _is_set_by_user(torchrun: Torchrun | None) -> bool:
    if ranks.started_by_torchrun():
        return torchrun is not None and torchrun.OMP_NUMBER_THREADS is not None
    return bool(os.environ.get(OMP_VARIABLE))


def _cores() -> int:
    """Return how many cores the CPU affinity and the container's quota allow."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return min(cores, _quota() or cores)


def _quota() -> int | None:
    """Return the CPU quota of a container in cores; the file of cgroup v2 has `max 100000`."""
    if not CGROUP_QUOTA.is_file():
        return None
    allowed, period = CGROUP_QUOTA.read_text(encoding="utf-8").split()
    return None if allowed == "max" else max(1, int(allowed) // int(period))
