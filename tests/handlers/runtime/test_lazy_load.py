"""What is loaded when it is first needed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.errors import OutOfTime
from handlers.runtime.deadline import Deadline
from handlers.runtime.lazy_load import RETRY_SECONDS, LazyLoad
from tests.clock import Clock


def test_it_is_loaded_once_for_all_who_need_it_at_the_same_time() -> None:
    loads: list[int] = []
    may_end = threading.Event()

    def load() -> object:
        loads.append(1)
        may_end.wait(60)
        return object()

    lazy = LazyLoad(load)
    assert lazy.loaded is None
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(lazy.get) for _ in range(4)]
        may_end.set()
        found = [each.result() for each in waiting]
    assert found == [lazy.loaded] * 4
    assert loads == [1]


def test_who_is_out_of_time_leaves_the_load_to_the_others() -> None:
    may_end = threading.Event()
    lazy = LazyLoad(lambda: may_end.wait(60))
    with pytest.raises(OutOfTime):
        lazy.get(Deadline(0.0))
    may_end.set()
    assert lazy.get() is True


def test_some_time_after_an_error_it_is_loaded_again() -> None:
    outcomes = iter([OSError("no space"), None])
    clock = Clock()

    def load() -> str:
        if error := next(outcomes):
            raise error
        return "loaded"

    lazy = LazyLoad(load, clock)
    for clock.now in (0.0, RETRY_SECONDS / 2):
        with pytest.raises(OSError, match="no space"):
            lazy.get()
    assert lazy.loaded is None
    clock.now = 2 * RETRY_SECONDS
    assert lazy.get() == "loaded"
