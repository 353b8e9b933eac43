"""Processes that were started as the leader of their own group, and everything they started."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

PAUSE = 0.05


def group_members(leader: int) -> list[psutil.Process]:
    """Return the living processes of a group, the leader among them."""
    return [process for process in psutil.process_iter() if _lives_in(process, leader)]


def end_group(leader: int, timeout: float = 15.0) -> None:
    """Ask a group's leader to end, wait, and kill whatever of the group is left."""
    with suppress(psutil.NoSuchProcess):
        psutil.Process(leader).terminate()
    _wait(leader, timeout)
    for process in group_members(leader):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _wait(leader, timeout)
    # A child of this process stays as a zombie until somebody has asked how it ended.
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(leader).wait(0)


def started_at(pid: int) -> float | None:
    """Return when a process began, or None when there is none with this id or it has ended."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def _wait(leader: int, timeout: float) -> None:
    # Not psutil's own waiting: it counts a zombie, which only a careful init removes, as alive.
    end = time.monotonic() + timeout
    while group_members(leader) and time.monotonic() < end:
        time.sleep(PAUSE)


def _lives_in(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
        return False
