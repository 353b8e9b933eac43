"""Limits of the memory that a worker keeps after batches.

In bfloat16, a matrix multiplication is compiled by oneDNN for each shape. Two caches of 1024 each
keep the results: that of oneDNN, and that of ideep, through which torch calls it. A worker that
reads texts of all lengths grows by hundreds of megabytes until both are full. Only both limits
together stop this, because each cache keeps alive what the other has dropped.

glibc raises its mmap threshold, from 128 KiB up to 32 MiB, to the size of the largest buffer that
was freed. Buffers of a batch then lie in the heap between entries of the caches, and the holes that
they leave fit no larger batch. A fixed threshold returns the large buffers to the system.

Requests of all kinds and sizes leave holes as well, whatever the threshold, and one that fits none
of them extends the heap. glibc returns only the end of the heap to the system by itself; it returns
the holes when it is asked to. What an ordinary batch frees, the next one uses again. A request that
is refused takes memory of its own: for a large body before its limit is found, for example.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import psutil

# A forward pass has about five operations for each shape. A miss costs a quarter of a millisecond,
# an entry half a megabyte. ideep crashes if its capacity is 0.
CACHE_CAPACITY = "64"
CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")

# A release makes the next batches up to 30 milliseconds slower: they get memory from the system
# again, and the system fills it with zeros.
FREED_LIMIT = 16 << 20
RELEASE_INTERVAL = 2.0  # seconds


class MallocOption(NamedTuple):
    """A parameter of glibc's mallopt, the variable that sets it at the start, and its value."""

    parameter: int
    variable: str
    tunable: str
    value: int


# Lower thresholds save more memory and cost time: each buffer from the system is filled with zeros
# again. 1 MiB costs 8 percent of the time of a small model, 64 KiB 27 percent, 4 MiB none.
MALLOC_OPTIONS = (
    MallocOption(-3, "MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold", 4 << 20),
    MallocOption(-1, "MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold", 64 << 20),
)


class FreedMemory:
    """Memory that was freed in this process, and that glibc keeps for later.

    Other systems than Linux with glibc are left as they are.

    Args:
        clock: returns a time in seconds.
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
    libc = _glibc()
    if libc:
        for option in _unset_malloc_options(os.environ):
            libc.mallopt(option.parameter, option.value)


def _limit_caches(environment: MutableMapping[str, str]) -> None:
    for variable in CACHE_VARIABLES:
        environment.setdefault(variable, CACHE_CAPACITY)


def _unset_malloc_options(environment: Mapping[str, str]) -> list[MallocOption]:
    tunables = environment.get("GLIBC_TUNABLES", "")
    return [
        option
        for option in MALLOC_OPTIONS
        if option.variable not in environment and option.tunable not in tunables
    ]


def _glibc() -> Any:
    """Return the C library of this process if it is glibc; None on other systems."""
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows
        return None
    return libc if hasattr(libc, "gnu_get_libc_version") else None
