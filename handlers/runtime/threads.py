"""The number of threads of a worker, so that several workers do not oversubscribe the cores."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from handlers.compat.torchserve import count_workers
from handlers.config.torchserve_section import Torchrun
from handlers.errors import Overloaded
from handlers.runtime import ranks
from handlers.runtime.cgroup import available_cores

logger = logging.getLogger(__name__)

OMP_VARIABLE = "OMP_NUM_THREADS"
# Those of tokenizers: whether the texts of a batch are divided among threads, and among how many.
PARALLELISM_VARIABLE = "TOKENIZERS_PARALLELISM"
RAYON_VARIABLE = "RAYON_NUM_THREADS"
IS_PARALLELISM_SET_BY_USER = PARALLELISM_VARIABLE in os.environ
RECOUNT_INTERVAL = 10.0  # seconds; a count takes about 5 us for each process of the machine


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


class ThreadShare:
    """The share of the cores that this worker uses, while workers start and stop.

    The management API starts workers beyond those of the YAML. Each counts the workers of its
    model when it loads, and the running ones follow.

    Args:
        workers: how many workers of the model are planned.
        torchrun: the `torchrun` section of the YAML.
        is_fixed: whether the number stays that of the load: compiled functions are compiled again
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
