"""The memory of the processes of a server: what each has alone, and what it shares."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

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
        """Return the memory of processes; `shared` is that of the one that shares most."""
        each = [cls.of(process.pid) for process in processes]
        shared = max((memory.shared for memory in each), default=0)
        return cls(sum(memory.private for memory in each), shared)
