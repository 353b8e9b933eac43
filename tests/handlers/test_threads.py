from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from handlers import threads


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: Any) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.delenv(threads.SET_BY_USER, raising=False)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("workers", "share"), [(1, 16), (2, 8), (3, 5), (16, 1), (40, 1)])
def test_workers_share_the_cores(workers: int, share: int) -> None:
    assert threads.share_cores(workers) == share == torch.get_num_threads()


def test_what_is_set_from_outside_stays(monkeypatch: Any) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv(threads.SET_BY_USER, "1")
    assert threads.share_cores(2) == 1
