"""What processes that share a model agree on, although each counts the time for itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hf_serve.handlers.errors import DeadlineExceeded
from hf_serve.handlers.process.deadline import Deadline, before
from hf_serve.handlers.process.ranks import agree
from hf_serve.handlers.process.threads import LazyLoad
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests.clock import Clock
from tests.ranks import on_ranks


def deadline_of(rank: int, late: int) -> Deadline:
    """Return a deadline that has passed on one rank alone."""
    clock = Clock()
    deadline = Deadline(10, clock)
    clock.now = 11 if rank == late else 9
    return deadline


def test_looks_at_a_deadline_are_no_operations_of_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One more of them on one rank would block all."""

    def run(rank: int) -> list[bool]:
        deadline = deadline_of(rank, late=1)
        return [deadline.passed for _ in range(1 + 5 * rank)]

    found, group = on_ranks(monkeypatch, run)
    assert found == [[False], [True] * 6]
    assert group.operations == 0


@pytest.mark.parametrize("late", [0, 1])
def test_each_rank_has_the_decision_of_the_first(
    monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    def run(rank: int) -> list[Any]:
        deadline = deadline_of(rank, late)
        found: list[Any] = [agree(deadline.passed)]
        for call in (deadline.check_together, lambda: before(deadline, len)("four")):
            try:
                found.append(call())
            except DeadlineExceeded as error:
                found.append(type(error))
        return found

    first, second = on_ranks(monkeypatch, run)[0]
    expected: list[Any] = (
        [True, DeadlineExceeded, DeadlineExceeded] if late == 0 else [False, None, 4]
    )
    assert first == second == expected


@pytest.mark.parametrize("late", [0, 1])
def test_each_rank_computes_the_same_requests(
    monkeypatch: pytest.MonkeyPatch, served: Any, late: int
) -> None:
    # Each rank has a model of its own.
    engines = [served("sequence_classification", max_rows=100 + rank).engine for rank in range(2)]

    def run(rank: int) -> float:
        meter = Meter()
        requests = [Request("fine"), Request("bad")]
        engines[rank].predict(requests, meter, deadline_of(rank, late))
        return meter.counts["forwards"]

    first, second = on_ranks(monkeypatch, run)[0]
    assert first == second == (0 if late == 0 else 1)


@pytest.mark.parametrize("first", [True, False], ids=["the first has it", "the second has it"])
def test_what_one_rank_has_loaded_in_time_the_others_wait_for(
    monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    may_end, waits = threading.Event(), threading.Event()

    def run(rank: int) -> Any:
        is_loaded = (rank == 0) == first
        lazy = LazyLoad(lambda: "loaded" if is_loaded else str(may_end.wait(60)))
        if is_loaded:
            lazy._started().result()
        try:
            return lazy.get(deadline_of(rank, late=int(first)))
        except DeadlineExceeded as error:
            return type(error)
        finally:
            waits.set()

    def release() -> None:
        waits.wait(60)
        may_end.set()

    threading.Thread(target=release).start()
    found, group = on_ranks(monkeypatch, run)
    assert found == (["loaded", "True"] if first else [DeadlineExceeded] * 2)
    assert group.operations == 1
