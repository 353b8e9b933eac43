"""Threads of the worker: how many torch uses, and what one thread at a time or only one may do."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch

from ..compat.torchserve import count_workers
from ..config.model_config import Torchrun
from ..errors import DeadlineExceeded, Overloaded, copied
from . import ranks
from .deadline import NO_DEADLINE, Deadline
from .resources import available_cores

logger = logging.getLogger(__name__)

OMP_VARIABLE = "OMP_NUM_THREADS"
# Whether tokenizers divide the texts of a batch among threads, and among how many.
PARALLELISM_VARIABLE = "TOKENIZERS_PARALLELISM"
RAYON_VARIABLE = "RAYON_NUM_THREADS"
IS_PARALLELISM_SET_BY_USER = PARALLELISM_VARIABLE in os.environ
RECOUNT_INTERVAL = 10.0  # seconds; a count takes about 5 us for each process of the machine
Loaded_co = TypeVar("Loaded_co", covariant=True)
Result = TypeVar("Result")
# How long a caller waits for a load before it looks at its deadline, in seconds.
LOAD_PATIENCE = 0.1
# Seconds in which every caller gets the error of a load, which can take minutes.
RETRY_SECONDS = 60.0


class ThreadShare:
    """The share of the cores that this worker uses, while workers start and stop.

    The management API starts more workers than the YAML names. Each counts the workers of its
    model when it loads, and the running ones follow.

    Args:
        workers: how many workers of the model are planned.
        torchrun: the `torchrun` section of the YAML.
        is_fixed: whether the number stays as it was at load: compiled functions are compiled again
            for another number of threads.
    """

    def __init__(
        self, workers: int, torchrun: Torchrun | None = None, *, is_fixed: bool = False
    ) -> None:
        self._workers = workers
        self._is_fixed = is_fixed or _is_set_by_user(torchrun)
        self._next_count = time.monotonic() + RECOUNT_INTERVAL
        set_num_threads(workers, torchrun)

    def refresh(self) -> None:
        """Count the workers again if the last count is old, and set the number of threads.

        Call it in the thread that runs the model: OpenMP keeps the number of each thread.
        """
        if self._is_fixed or time.monotonic() < self._next_count:
            return
        self._next_count = time.monotonic() + RECOUNT_INTERVAL
        try:
            share = _share(self._workers)
        except OSError:  # The folder of the model was removed.
            return
        before = torch.get_num_threads()
        if share != before:
            torch.set_num_threads(share)
            _limit_tokenizers(share)
            logger.info("Threads of torch: %d instead of %d", share, before)


def set_num_threads(workers: int, torchrun: Torchrun | None = None) -> int:
    """Set the number of threads of torch, other inference engines and tokenizers, and return it.

    The available cores are divided among the processes of all workers: those that are planned or,
    if there are more, those that run. A number that the user set is kept: `OMP_NUM_THREADS`, or
    under torchrun only the YAML's `OMP_NUMBER_THREADS`, because TorchServe and torchrun set the
    variable to 1 by default.

    Args:
        workers: how many workers of the model are planned.
        torchrun: the `torchrun` section of the YAML.
    """
    if not _is_set_by_user(torchrun):
        torch.set_num_threads(_share(workers))
    threads = torch.get_num_threads()
    _limit_tokenizers(threads)
    logger.info("Threads of this process: %d", threads)
    return threads


def _share(workers: int) -> int:
    return max(1, available_cores() // max(workers * ranks.local_world_size(), count_workers()))


def _limit_tokenizers(threads: int) -> None:
    """Have tokenizers use as many threads; with one, they tokenize in the thread that calls them.

    Their own thread would wait for a core that computes for another worker, and with it the batch.
    """
    os.environ.setdefault(RAYON_VARIABLE, str(threads))
    if not IS_PARALLELISM_SET_BY_USER:
        os.environ[PARALLELISM_VARIABLE] = "true" if threads > 1 else "false"


def _is_set_by_user(torchrun: Torchrun | None) -> bool:
    if ranks.started_by_torchrun():
        return torchrun is not None and torchrun.OMP_NUMBER_THREADS is not None
    return bool(os.environ.get(OMP_VARIABLE))


class NoThread(Overloaded):
    """The process cannot have a further thread now."""

    def __init__(self) -> None:
        super().__init__("The server cannot start a further thread; send the request again later.")


def start_thread(name: str, function: Callable[..., None], *arguments: Any) -> threading.Thread:
    """Start a thread that does not keep the process from ending, and return it.

    Raises:
        NoThread: the process cannot have a further one. What waits for the thread has to be told.
    """
    thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        raise NoThread from None
    return thread


class EventLoopThread:
    """An event loop that runs in a thread from the first call on.

    What functions keep between calls, such as the connections of an asynchronous client, is bound
    to the event loop of its first use, so that all calls of all threads have the same one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def result_of(self, awaitable: Awaitable[Result]) -> Result:
        """Return the result of an awaitable, or raise its error.

        Raises:
            NoThread: the process cannot have a further thread.
        """

        async def completed() -> Future[Result]:
            future = Future[Result]()
            try:
                future.set_result(await awaitable)
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)
            return future

        loop = self._started()
        return asyncio.run_coroutine_threadsafe(completed(), loop).result().result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                start_thread("event loop", _run_loop, loop, torch.get_num_threads())
                self._loop = loop
            return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop, threads: int) -> None:
    torch.set_num_threads(threads)
    while True:  # A task that nobody waits for must not end it.
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


class SeveralThreads(RuntimeError):
    """Two threads run a model at the same time, which changes its outputs: a bug of the caller."""

    def __init__(self, running: str) -> None:
        super().__init__(
            f"The model is run by the thread {running!r}; use one thread, or one after another."
        )


class OneThread:
    """A block that one thread at a time may be in; the same one may enter it again.

    Raises:
        SeveralThreads: another thread is in it.
    """

    def __init__(self) -> None:
        self._lock, self._name = threading.RLock(), ""

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise SeveralThreads(self._name)
        self._name = threading.current_thread().name

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._lock.release()


class LazyLoad(Generic[Loaded_co]):
    """Loads something at the first call, in a separate thread, and keeps it.

    After an error, calls have the same error for some time, and then load again.
    """

    def __init__(
        self, load: Callable[[], Loaded_co], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load, self._clock, self._lock = load, clock, threading.Lock()
        self._future: Future[Loaded_co] | None = None
        self._retry_at = 0.0

    @property
    def loaded(self) -> Loaded_co | None:
        """What was loaded; None before."""
        future = self._future
        return future.result() if future and future.done() and not future.exception() else None

    def get(self, deadline: Deadline = NO_DEADLINE) -> Loaded_co:
        """Return it, loaded.

        Args:
            deadline: how long to wait; loading goes on after it.

        Raises:
            DeadlineExceeded: the deadline has passed before.
            NoThread: the process cannot have a further thread to load it in.
        """
        future = self._started()
        while not (future.done() or deadline.passed):
            wait([future], LOAD_PATIENCE)
        # Where processes share a model, the others wait on if the first has it.
        if not ranks.agree(future.done()):
            raise DeadlineExceeded
        if error := future.exception():
            raise copied(error)
        return future.result()

    def _started(self) -> Future[Loaded_co]:
        with self._lock:
            future = self._future
            failed = future is not None and future.done() and future.exception() is not None
            if future is None or (failed and self._clock() >= self._retry_at):
                future = Future()
                start_thread("load", self._run, future)
                self._future = future
            return future

    def _run(self, future: Future[Loaded_co]) -> None:
        try:
            future.set_result(self._load())
        except BaseException as error:  # noqa: BLE001 - the callers raise it
            self._retry_at = self._clock() + RETRY_SECONDS
            future.set_exception(error)


class Paced:
    """Calls a function for one thread at a time, and at most so often.

    Args:
        most: how many calls there may be within some seconds.
        seconds: these seconds.
    """

    def __init__(
        self,
        function: Callable[[], None],
        most: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._function, self._seconds, self._clock = function, seconds, clock
        self._running = threading.Lock()
        self._calls = deque[float](maxlen=most)

    def __call__(self) -> None:
        """Call the function; nothing where it is running, or was called too often."""
        if not self._running.acquire(blocking=False):
            return
        try:
            is_full = len(self._calls) == self._calls.maxlen
            if is_full and self._clock() - self._calls[0] < self._seconds:
                return
            self._calls.append(self._clock())
            self._function()
        finally:
            self._running.release()
