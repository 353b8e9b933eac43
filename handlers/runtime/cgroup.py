"""The cores and the memory that this process may use: those of its container, or of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
# The files of cgroup v1; v2 has both numbers in one.
QUOTA_V1, PERIOD_V1 = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


def available_cores(cgroup: Path = CGROUP) -> int:
    """Return how many cores the CPU affinity and the container's quota allow, at least one."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, int(cpu_quota(cgroup) or cores)))


def cpu_quota(cgroup: Path = CGROUP) -> float | None:
    """Return the cores that the container may use; None without a limit."""
    words = _words(cgroup, "cpu.max") or _words(cgroup, QUOTA_V1, PERIOD_V1)
    try:
        quota, period = map(int, words)
    except ValueError:  # no file, or `max`
        return None
    return quota / period if quota > 0 else None


def memory_limit(cgroup: Path = CGROUP) -> int:
    """Return the memory of the container, or of the machine if that is less, in bytes."""
    limits = _words(cgroup, "memory.max") + _words(cgroup, "memory/memory.limit_in_bytes")
    machine = int(psutil.virtual_memory().total)
    return min([machine, *(int(limit) for limit in limits if limit.isdecimal())])


def _words(folder: Path, *names: str) -> list[str]:
    """Return the words in files; none where one of them is missing."""
    try:
        return " ".join((folder / name).read_text(encoding="utf-8") for name in names).split()
    except OSError:
        return []
