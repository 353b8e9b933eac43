"""Threads that stand in for the processes that share a model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from hf_serve.handlers.process import deadline, ranks

Result = TypeVar("Result")
# Seconds until a rank that waits for the others in a collective operation fails.
WAIT = 5.0


class Group:
    """A process group whose processes are threads; it has what `torch.distributed` has."""

    def __init__(self, size: int) -> None:
        self._rank = threading.local()
        self._arrive, self._leave = threading.Barrier(size), threading.Barrier(size)
        self._values: list[Any] = []
        self.operations = 0

    def run(self, rank: int, function: Callable[[int], Result]) -> Result:
        """Call a function with a rank, as the process of that rank."""
        self._rank.number = rank
        return function(rank)

    def is_available(self) -> bool:
        """Return that there is a group."""
        return True

    def is_initialized(self) -> bool:
        """Return whether this thread is one of the group."""
        return hasattr(self._rank, "number")

    def broadcast_object_list(self, values: list[Any]) -> None:
        """Replace the values with those of rank 0, when every rank has come.

        Raises:
            BrokenBarrierError: one does not come.
        """
        if self._rank.number == 0:
            self._values = list(values)
            self.operations += 1
        self._arrive.wait(WAIT)
        values[:] = self._values
        self._leave.wait(WAIT)


def on_ranks(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[int], Result], size: int = 2
) -> tuple[list[Result], Group]:
    """Return what a function returns on each rank, and their group."""
    group = Group(size)
    for module in (deadline, ranks):
        monkeypatch.setattr(module, "distributed", group)
    with ThreadPoolExecutor(size) as threads:
        found = [threads.submit(group.run, rank, function) for rank in range(size)]
        return [each.result(4 * WAIT) for each in found], group
