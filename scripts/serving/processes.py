"""List and terminate process groups."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

POLL_INTERVAL = 0.05
# Process start times follow the system clock, which may be adjusted by this many seconds.
CLOCK_STEP = 5.0


def group_members(leader: int) -> list[psutil.Process]:
    """Return the running processes of a group, including the leader."""
    return [process for process in psutil.process_iter() if _is_member(process, leader)]


def end_group(leader: int, timeout: float = 15.0) -> None:
    """Terminate the leader of a group, then kill the remaining processes after a timeout."""
    with suppress(psutil.NoSuchProcess):
        psutil.Process(leader).terminate()
    _wait(leader, timeout)
    for process in group_members(leader):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _wait(leader, timeout)
    # A child of this process remains a zombie until its exit status is read.
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(leader).wait(0)


def started_at(pid: int) -> float | None:
    """Return when a process was started, or None if there is no such running process."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_running(pid: int, started: float) -> bool:
    """Return whether the process that was started at a time is running, not a later one."""
    found = started_at(pid)
    return found is not None and abs(found - started) < CLOCK_STEP


def _wait(leader: int, timeout: float) -> None:
    # Not psutil.wait_procs, which counts a zombie as running.
    end = time.monotonic() + timeout
    while group_members(leader) and time.monotonic() < end:
        time.sleep(POLL_INTERVAL)


def _is_member(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
        return False
