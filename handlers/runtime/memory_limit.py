"""How much memory this process may use: that of the container, or of the machine."""

from __future__ import annotations

from pathlib import Path

import psutil

# The files of cgroup v2 and v1; the first has `max` where there is no limit.
CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_limit() -> int:
    """Return the memory of the container, or of the machine if that is less, in bytes."""
    machine = int(psutil.virtual_memory().total)
    return min([machine, *filter(None, map(_limit, CGROUP_LIMITS))])


def _limit(path: Path) -> int | None:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(value) if value.isdecimal() else None
