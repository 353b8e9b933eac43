"""List and end the processes of a group, and measure their memory."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hf_serve.handlers.errors import KitError

POLL_INTERVAL = 0.05
# Process start times follow the system clock, which may be adjusted by this many seconds.
CLOCK_STEP = 5.0


class DamagedState(KitError):
    """A file does not say which process a server is."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is damaged, so whether its server runs is unknown; end the server by its"
            " process id if it runs, and remove it."
        )


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


def read_state(path: Path) -> dict[str, Any]:
    """Return the state that a server has written for other processes.

    Raises:
        DamagedState: the file has no process of a server.
    """
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        state["pid"], state["started"] = int(state["pid"]), float(state["started"])
    except (ValueError, TypeError, KeyError):
        raise DamagedState(path) from None
    return dict(state)


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


MIB = 1 << 20
# Kilobytes of a process, such as `Private_Clean` and `Private_Dirty`.
FIELD = re.compile(r"^(?P<kind>Private|Shared)_\w+: +(?P<size>\d+) kB$", re.M)


@dataclass(frozen=True)
class Memory:
    """Memory of processes, in bytes.

    Attributes:
        private: what they have alone; it is free when they end.
        shared: what others have, too, such as libraries, mapped weights, and pages that a fork has
            not changed.
    """

    private: int = 0
    shared: int = 0

    def __str__(self) -> str:
        return f"{self.private / MIB:.0f} MiB private, {self.shared / MIB:.0f} MiB shared"

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Return the memory of a process; none if it has ended, or belongs to another user."""
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
        except OSError:
            return cls()
        sizes = {"Private": 0, "Shared": 0}
        for match in FIELD.finditer(text):
            sizes[match["kind"]] += int(match["size"]) * 1024
        return cls(sizes["Private"], sizes["Shared"])

    @classmethod
    def of_all(cls, processes: Iterable[psutil.Process]) -> Memory:
        """Return the memory of processes; `shared` is what the one that shares most has."""
        each = [cls.of(process.pid) for process in processes]
        shared = max((memory.shared for memory in each), default=0)
        return cls(sum(memory.private for memory in each), shared)
