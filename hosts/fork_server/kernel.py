"""Requests to the Linux kernel that Python has no function for."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_MM, PR_SET_MM_MAP = 35, 14
NO_FILE = 0xFFFFFFFF
# Fields of /proc/self/stat, counted from 1, as in `man 5 proc_pid_stat`.
STAT_FIELDS = {
    "start_code": 26,
    "end_code": 27,
    "start_stack": 28,
    "start_data": 45,
    "end_data": 46,
    "start_brk": 47,
}


class MemoryMap(ctypes.Structure):
    """`struct prctl_mm_map` of linux/prctl.h."""

    _fields_ = (
        *(
            (name, ctypes.c_uint64)
            for name in (
                *("start_code", "end_code", "start_data", "end_data", "start_brk", "brk"),
                *("start_stack", "arg_start", "arg_end", "env_start", "env_end", "auxv"),
            )
        ),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )


def die_with_parent(parent: int) -> None:
    """Have this process killed when the one that started it ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # It has ended before.
        os._exit(1)


def oom_kills() -> int:
    """Return how many processes the system has killed for lack of memory since it started."""
    try:
        lines = Path("/proc/vmstat").read_text("utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def show_command(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Set what `ps` and `/proc` show as the command and the first variables of this process.

    Raises:
        OSError: the kernel does not allow it.
    """
    shown = b"".join(os.fsencode(word) + b"\0" for word in command)
    variables = b"".join(
        os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items()
    )
    memory = mmap.mmap(-1, len(shown) + len(variables), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(shown + variables)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    middle, end = start + len(shown), start + len(shown) + len(variables)
    stat = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    fields = {name: int(stat[number - 3]) for name, number in STAT_FIELDS.items()}
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    memory_map = MemoryMap(
        **fields,
        brk=libc.sbrk(0),
        arg_start=start,
        arg_end=middle,
        env_start=middle,
        env_end=end,
        exe_fd=NO_FILE,
    )
    _prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(memory_map), ctypes.sizeof(memory_map), 0)
    # The kernel reads it as long as the process lives, which no module of the worker refers to.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))


def _prctl(*arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
