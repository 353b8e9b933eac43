"""How much memory this process may use: that of the container, or of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

# The files of cgroup v2 and v1; the first has `max` where there is no limit.
CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_limit(container_limits: Sequence[Path] = CGROUP_LIMITS) -> int:
    """Return the memory of the container, or of the machine if that is less, in bytes.

    Args:
        container_limits: the files that have the limit of the container.
    """
    machine = int(psutil.virtual_memory().total)
    return min([machine, *filter(None, map(_limit, container_limits))])


def available_memory(device: torch.device) -> int:
    """Return the free memory of a GPU, or the memory that this process may use, in bytes."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return memory_limit()


def _limit(path: Path) -> int | None:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(value) if value.isdecimal() else None
