"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

# The files of cgroup v2 and v1; the first has `max 100000` where there is no limit.
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
CPU_QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
PERIOD_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def available_cores() -> int:
    """Return how many cores the CPU affinity and the cgroup's quota allow, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, int(cpu_quota() or cores or 1)))


def cpu_quota() -> float | None:
    """Return the cores that the cgroup allows; None without a limit."""
    try:
        if CPU_QUOTA.exists():
            quota, period = CPU_QUOTA.read_text("utf-8").split()
        else:
            quota, period = CPU_QUOTA_V1.read_text("utf-8"), PERIOD_V1.read_text("utf-8")
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):
        return None
