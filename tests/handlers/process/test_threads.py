"""Threads: how many torch uses, how one is started, and what is loaded once."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_serve.handlers.config.model_config import Torchrun
from hf_serve.handlers.errors import DeadlineExceeded, Overloaded, WrongConfig
from hf_serve.handlers.process import threads
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.process.threads import RETRY_SECONDS, EventLoopThread, LazyLoad, Paced
from tests.clock import Clock
from tests.sentences import refused
from tests.standins.workers import end, running_workers
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
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(lazy.get) for _ in range(4)]
        may_end.set()
        found = [each.result() for each in waiting]
    assert found == [lazy.loaded] * 4
    assert loads == [1]


def test_who_is_out_of_time_leaves_the_load_to_the_others() -> None:
    may_end = threading.Event()
    lazy = LazyLoad(lambda: may_end.wait(60))
    with pytest.raises(DeadlineExceeded):
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
    with ThreadPoolExecutor(4) as pool:
        errors = [pool.submit(lazy.get).exception() for _ in range(4)]
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
    clock.now = RETRY_SECONDS
    assert lazy.get() == "loaded"


def test_a_function_is_called_so_often_at_most() -> None:
    clock, calls = Clock(), list[float]()
    paced = Paced(lambda: calls.append(clock.now), 2, 10.0, clock)
    for clock.now in (0, 1, 2, 9, 10, 10.5, 11, 12):
        paced()
    assert calls == [0, 1, 10, 11]


def test_it_is_called_by_one_thread_at_a_time() -> None:
    calls, begun, may_end = list[int](), threading.Event(), threading.Event()

    def call() -> None:
        calls.append(1)
        begun.set()
        assert may_end.wait(60)

    paced = Paced(call, 5, 10.0)
    thread = threading.Thread(target=paced)
    thread.start()
    assert begun.wait(60)
    paced()
    may_end.set()
    thread.join()
    assert calls == [1]
    paced()
    assert calls == [1, 1]


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: Any) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    variables = (
        threads.OMP_VARIABLE,
        threads.PARALLELISM_VARIABLE,
        threads.RAYON_VARIABLE,
    )
    for name in (*variables, "LOCAL_WORLD_SIZE"):
        # Removed where it was not set, so that what a test sets is removed after it.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(threads, "IS_PARALLELISM_SET_BY_USER", False)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("workers", "share"), [(1, 16), (2, 8), (3, 5), (16, 1), (40, 1)])
def test_workers_share_the_cores(workers: int, share: int) -> None:
    assert threads.set_num_threads(workers) == share == torch.get_num_threads()


def test_a_number_set_by_the_environment_is_kept(monkeypatch: Any) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv(threads.OMP_VARIABLE, "1")
    assert threads.set_num_threads(2) == 1


@pytest.mark.parametrize(("workers", "parallel"), [(2, "true"), (16, "false")])
def test_a_worker_with_one_thread_tokenizes_in_the_thread_that_asks(
    workers: int, parallel: str
) -> None:
    share = threads.set_num_threads(workers)
    assert os.environ[threads.PARALLELISM_VARIABLE] == parallel
    assert os.environ[threads.RAYON_VARIABLE] == str(share)


def test_the_threads_of_tokenizers_that_the_user_set_are_kept(monkeypatch: Any) -> None:
    monkeypatch.setattr(threads, "IS_PARALLELISM_SET_BY_USER", True)
    monkeypatch.setenv(threads.PARALLELISM_VARIABLE, "true")
    monkeypatch.setenv(threads.RAYON_VARIABLE, "4")
    threads.set_num_threads(16)
    assert os.environ[threads.PARALLELISM_VARIABLE] == "true"
    assert os.environ[threads.RAYON_VARIABLE] == "4"


@pytest.mark.parametrize(
    ("workers", "processes", "share"), [(1, 1, 16), (1, 2, 8), (2, 2, 4), (1, 3, 5), (4, 16, 1)]
)
def test_processes_of_one_worker_divide_its_share(
    workers: int, processes: int, share: int, monkeypatch: Any
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    # TorchServe and torchrun set it if no number is configured.
    monkeypatch.setenv(threads.OMP_VARIABLE, "1")
    assert threads.set_num_threads(workers) == share == torch.get_num_threads()


@pytest.mark.parametrize("number", [1, 3])
def test_processes_of_one_worker_keep_the_number_of_the_yaml(number: int, monkeypatch: Any) -> None:
    torch.set_num_threads(number)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv(threads.OMP_VARIABLE, str(number))
    assert threads.set_num_threads(1, Torchrun(OMP_NUMBER_THREADS=number)) == number


@pytest.mark.parametrize(("live", "planned", "share"), [(1, 1, 16), (4, 1, 4), (3, 4, 4)])
def test_workers_that_were_scaled_up_share_the_cores(
    model_folder: Path, live: int, planned: int, share: int
) -> None:
    with running_workers(model_folder, live):
        assert threads.set_num_threads(planned) == share == torch.get_num_threads()


def test_processes_of_all_workers_are_counted(model_folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with running_workers(model_folder, 4):
        assert threads.set_num_threads(1) == 4


@pytest.fixture
def clock(monkeypatch: Any) -> list[float]:
    """The time that the module sees; change its element to let time pass."""
    now = [0.0]
    monkeypatch.setattr("hf_serve.handlers.process.threads.time.monotonic", lambda: now[0])
    return now


def test_a_running_worker_follows_the_number_of_workers(
    model_folder: Path, clock: list[float], caplog: Any
) -> None:
    share = threads.ThreadShare(1)
    assert torch.get_num_threads() == 16
    with running_workers(model_folder, 4) as workers, caplog.at_level(logging.INFO):
        share.refresh()
        assert torch.get_num_threads() == 16
        clock[0] += threads.RECOUNT_INTERVAL
        share.refresh()
        assert torch.get_num_threads() == 4
        for worker in workers[:2]:
            end(worker)
        clock[0] += threads.RECOUNT_INTERVAL
        share.refresh()
        share.refresh()
        assert torch.get_num_threads() == 8
    assert caplog.messages == [
        "Threads of torch: 4 instead of 16",
        "Threads of torch: 8 instead of 4",
    ]


def test_tokenizers_follow_the_number_of_workers(
    model_folder: Path, clock: list[float], monkeypatch: Any
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    share = threads.ThreadShare(1)
    assert os.environ[threads.PARALLELISM_VARIABLE] == "true"
    with running_workers(model_folder, 4):
        clock[0] += threads.RECOUNT_INTERVAL
        share.refresh()
    assert os.environ[threads.PARALLELISM_VARIABLE] == "false"


def test_a_fixed_number_is_kept_while_the_worker_runs(
    model_folder: Path, clock: list[float], monkeypatch: Any
) -> None:
    compiled = threads.ThreadShare(1, is_fixed=True)
    monkeypatch.setenv(threads.OMP_VARIABLE, "16")
    chosen = threads.ThreadShare(1)
    with running_workers(model_folder, 4):
        clock[0] += threads.RECOUNT_INTERVAL
        for share in (compiled, chosen):
            share.refresh()
            assert torch.get_num_threads() == 16


def test_a_worker_whose_folder_was_removed_keeps_its_threads(
    model_folder: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    share = threads.ThreadShare(1)
    monkeypatch.setattr(Path, "cwd", _no_folder)
    clock[0] += threads.RECOUNT_INTERVAL
    share.refresh()
    assert torch.get_num_threads() == 16


def _no_folder() -> Path:
    raise FileNotFoundError


def test_awaitables_of_all_threads_have_one_event_loop_and_the_threads_of_torch() -> None:
    thread = EventLoopThread()

    async def found() -> tuple[asyncio.AbstractEventLoop, int]:
        return asyncio.get_running_loop(), torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        others = list(pool.map(lambda _: thread.result_of(found()), range(4)))
    assert {*others, thread.result_of(found())} == {(others[0][0], torch.get_num_threads())}


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, TimeoutError])
def test_an_awaitable_raises_its_error_and_later_ones_are_awaited(
    error: type[BaseException],
) -> None:
    thread = EventLoopThread()

    async def fail() -> None:
        raise error

    async def leave_one_that_fails() -> str:
        tasks.append(asyncio.create_task(fail()))
        return "left"

    tasks: list[asyncio.Task[None]] = []
    with pytest.raises(error):
        thread.result_of(fail())
    assert thread.result_of(leave_one_that_fails()) == "left"
    assert thread.result_of(asyncio.sleep(0, "fine")) == "fine"
    assert isinstance(tasks[0].exception(), error)


def test_an_event_loop_that_has_no_thread_is_started_by_a_later_call() -> None:
    thread = EventLoopThread()
    with without_threads():
        waiting = asyncio.sleep(0, "fine")
        with pytest.raises(Overloaded):
            thread.result_of(waiting)
    assert thread.result_of(waiting) == "fine"
