"""What is loaded when it is first needed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.errors import OutOfTime, Overloaded, WrongConfig
from handlers.runtime.deadline import Deadline
from handlers.runtime.lazy_load import RETRY_SECONDS, LazyLoad
from tests.clock import Clock
from tests.sentences import refused
from tests.threads import without_threads


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


def test_it_is_loaded_later_where_there_was_no_thread() -> None:
    lazy = LazyLoad(lambda: "loaded")
    with without_threads(), refused(Overloaded):
        lazy.get()
    assert lazy.get() == "loaded"


def test_each_caller_has_an_error_of_its_own() -> None:
    """One that is raised gets the frames of its caller, whose variables are bodies."""

    def load() -> None:
        raise WrongConfig("handler.mode", "is wrong", "correct it")

    lazy = LazyLoad(load)
    with ThreadPoolExecutor(4) as threads:
        errors = [threads.submit(lazy.get).exception() for _ in range(4)]
    assert len({id(error) for error in errors}) == 4
    assert {str(error) for error in errors} == {"handler.mode: is wrong; correct it."}


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
