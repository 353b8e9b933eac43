from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.torchserve.worker import Watchdog, call_stacks
from tests.clock import Clock
from tests.threads import without_threads
from tests.waiting import wait_for

OFTEN = 0.001


def test_a_batch_that_hangs_is_noticed_once(caplog: pytest.LogCaptureFixture) -> None:
    hangs, clock = list[str](), Clock()
    watching = Watchdog(10, lambda: hangs.append(threading.current_thread().name), OFTEN)
    with watching.watch(Deadline(8, clock)):
        clock.now = 11
        wait_for(lambda: hangs)
    assert hangs == ["watchdog"]
    assert "test_a_batch_that_hangs_is_noticed_once" in caplog.text


def test_it_watches_the_next_batch_where_it_has_had_no_thread() -> None:
    hangs, clock = list[None](), Clock()
    watching = Watchdog(10, lambda: hangs.append(None), OFTEN)
    with without_threads(), watching.watch(Deadline(8, clock)):
        pass
    with watching.watch(Deadline(8, clock)):
        clock.now = 11
        wait_for(lambda: hangs)


def test_a_part_that_is_sent_starts_the_time_of_a_batch_again() -> None:
    hangs, clock = list[None](), Clock()
    watching, deadline = Watchdog(10, lambda: hangs.append(None), OFTEN), Deadline(8, clock)
    with watching.watch(deadline):
        clock.now = 9
        deadline.restart()
        clock.now = 18
        wait_for(clock.looked_at(3))
        assert not hangs
        clock.now = 20
        wait_for(lambda: hangs)


def test_a_batch_that_ended_is_not_watched() -> None:
    hangs, clock = list[None](), Clock()
    watching = Watchdog(10, lambda: hangs.append(None), OFTEN)
    with watching.watch(Deadline(8, clock)):
        pass
    clock.now = 100
    with watching.watch(Deadline(8, clock)):
        wait_for(clock.looked_at(3))
    assert not hangs


def test_the_stacks_of_threads_have_no_values() -> None:
    secret, waiting = "Quimby", threading.Event()
    thread = threading.Thread(target=lambda: waiting.wait(len(secret) * 100), name="other")
    thread.start()
    stacks = call_stacks()
    waiting.set()
    thread.join()
    assert "other at threading.py:" in stacks and secret not in stacks


WORKER = """
import atexit, logging, sys
from hf_serve.handlers.torchserve import worker

logging.basicConfig(stream=sys.stdout)
atexit.register(print, "cleaned up")
worker.LAST_RESPONSES_SECONDS = 0
worker.end_worker()
"""


def test_a_worker_ends_without_clean_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKER], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stderr
    assert "this worker ends, and TorchServe starts a new one" in done.stdout
    assert "cleaned up" not in done.stdout
