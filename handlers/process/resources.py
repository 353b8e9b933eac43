"""The cores and the memory that this process may use, and the memory that it keeps after batches.

The limits are set by the container (cgroup) or by the machine.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

CGROUP = Path("/sys/fs/cgroup")
# The files of cgroup v1; v2 has both numbers in one.
QUOTA_V1, PERIOD_V1 = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"

# In bfloat16, oneDNN compiles a matrix multiplication for each shape. oneDNN and ideep, which calls
# it for torch, cache 1024 results each, and each cache keeps alive what the other has dropped. A
# worker that reads texts of all lengths grows by hundreds of megabytes until both are full, so both
# get a limit. A forward pass has about five operations for each shape. A miss costs a quarter of a
# millisecond, an entry half a megabyte. ideep crashes if its capacity is 0.
CACHE_CAPACITY = "64"
CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")

# glibc returns only the end of the heap to the system by itself. Requests of all sizes leave holes,
# and a request that fits none of them extends the heap; the next batch uses again what an ordinary
# batch frees, but a refused request can leave a hole as large as its body. A release returns the
# holes. It makes the next batches up to 30 milliseconds slower: they get memory from the system
# again, and the system fills it with zeros.
FREED_LIMIT = 16 << 20
RELEASE_INTERVAL = 2.0  # seconds


class MallocOption(NamedTuple):
    """A parameter of glibc's mallopt, the variable that sets it at the start, and its value."""

    parameter: int
    variable: str
    tunable: str
    value: int


# glibc raises its mmap threshold, from 128 KiB up to 32 MiB, to the size of the largest buffer that
# was freed. Buffers of a batch then lie in the heap between entries of the caches, and the holes
# that they leave fit no larger batch. A fixed threshold returns large buffers to the system. Lower
# thresholds save more memory and cost time, because the system fills each buffer with zeros again.
# 1 MiB costs 8 percent of the time of a small model, 64 KiB 27 percent, 4 MiB none.
MALLOC_OPTIONS = (
    MallocOption(-3, "MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold", 4 << 20),
    MallocOption(-1, "MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold", 64 << 20),
)
# glibc gives several threads an arena each, and what they free stays between objects in use. The
# threads of a tiny model's requests kept 90 MB after 12,000 requests, most of which were refused.
# Threads take the arenas of threads that have ended before, whatever the number is.
ONE_ARENA = (MallocOption(-8, "MALLOC_ARENA_MAX", "glibc.malloc.arena_max", 1),)


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


def release_memory() -> None:
    """Return the memory that a load has freed to the system."""
    gc.collect()
    if libc := _glibc():
        libc.malloc_trim(0)


class FreedMemory:
    """Memory that was freed in this process, and that glibc keeps for later.

    Other systems than Linux with glibc are left as they are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._libc, self._clock = _glibc(), clock
        self._process = psutil.Process()
        self._least, self._next_release = self._resident(), clock()

    def release(self) -> None:
        """Return it to the system if the process has grown, at most once an interval.

        Call it after a batch with a request that was refused.
        """
        resident = self._resident()
        self._least = min(self._least, resident)
        has_grown = resident - self._least > FREED_LIMIT
        if self._libc and has_grown and self._clock() >= self._next_release:
            self._libc.malloc_trim(0)
            self._least = self._resident()
            self._next_release = self._clock() + RELEASE_INTERVAL

    def _resident(self) -> int:
        return self._process.memory_info().rss


def limit_memory_growth() -> None:
    """Limit the caches of this process and the holes in its heap; what the user set is kept.

    Call it before the first operation of torch. Importing torch before is fine: the libraries read
    their variables at the first operation. glibc reads its variables at the start of the process
    only, so its parameters are set by function calls.
    """
    _limit_caches(os.environ)
    _set_malloc_options(MALLOC_OPTIONS)


def share_heap_between_threads() -> None:
    """Have the threads that start from now on allocate in one heap, unless the user set a number.

    It is for threads that run in turns, as those of Python do.
    """
    _set_malloc_options(ONE_ARENA)


def _set_malloc_options(options: Sequence[MallocOption]) -> None:
    libc = _glibc()
    if libc:
        for option in _unset_malloc_options(options, os.environ):
            libc.mallopt(option.parameter, option.value)


def _limit_caches(environment: MutableMapping[str, str]) -> None:
    for variable in CACHE_VARIABLES:
        environment.setdefault(variable, CACHE_CAPACITY)


def _unset_malloc_options(
    options: Sequence[MallocOption], environment: Mapping[str, str]
) -> list[MallocOption]:
    tunables = environment.get("GLIBC_TUNABLES", "")
    return [
        option
        for option in options
        if option.variable not in environment and option.tunable not in tunables
    ]


def _glibc() -> Any:
    """Return the C library of this process if it is glibc; None on other systems."""
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows
        return None
    return libc if hasattr(libc, "gnu_get_libc_version") else None
