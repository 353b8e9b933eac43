from __future__ import annotations

import threading

from handlers.runtime.paced import Paced
from tests.clock import Clock


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
