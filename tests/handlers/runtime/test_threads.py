from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from handlers.config.torchserve_section import Torchrun
from handlers.runtime import threads


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: Any) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    for name in (threads.OMP_VARIABLE, "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("workers", "share"), [(1, 16), (2, 8), (3, 5), (16, 1), (40, 1)])
def test_workers_share_the_cores(workers: int, share: int) -> None:
    assert threads.set_num_threads(workers) == share == torch.get_num_threads()


def test_a_number_set_by_the_environment_is_kept(monkeypatch: Any) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv(threads.OMP_VARIABLE, "1")
    assert threads.set_num_threads(2) == 1


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
