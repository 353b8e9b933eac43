from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest

from hf_serve.handlers.errors import Overloaded
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.torchserve import streamed_responses
from hf_serve.handlers.torchserve.streamed_responses import (
    LEAD_SECONDS,
    SAME_STEP,
    Ready,
    RequestThreads,
    Send,
    StepClock,
)
from tests.clock import Clock
from tests.threads import without_threads


class Moments:
    """A clock that is set by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    own = Moments()
    monkeypatch.setattr(streamed_responses, "time", own)
    return own


def tick(clock: StepClock, moments: Moments, *times: float) -> None:
    for moments.now in times:
        clock.tick()


def test_nothing_is_known_before_the_second_step(moments: Moments) -> None:
    clock = StepClock()
    assert clock.seconds_to_next() == math.inf
    tick(clock, moments, 100.0)
    assert clock.seconds_to_next() == math.inf


def test_the_next_step_takes_as_long_as_those_before(moments: Moments) -> None:
    clock = StepClock()
    tick(clock, moments, 100.0, 100.5, 101.0)
    moments.now = 101.125
    assert clock.seconds_to_next() == pytest.approx(0.375)
    moments.now = 101.75
    assert clock.seconds_to_next() == pytest.approx(-0.25)


def test_parts_of_several_texts_are_one_step(moments: Moments) -> None:
    clock = StepClock()
    tick(clock, moments, 100.0, 100.001, 100.002, 100.5, 100.501)
    moments.now = 100.5
    assert clock.seconds_to_next() == pytest.approx(0.5)


def test_longer_steps_do_not_change_the_estimate_while_a_quarter_is_short(moments: Moments) -> None:
    clock = StepClock()
    tick(clock, moments, 100.0, 100.5, 101.25, 102.0)
    assert clock.seconds_to_next() == pytest.approx(0.5)


def test_the_estimate_is_that_of_the_last_steps(moments: Moments) -> None:
    clock = StepClock()
    tick(clock, moments, 100.0, *(100.125 + 0.125 * number for number in range(16)))
    assert clock.seconds_to_next() == pytest.approx(0.125)
    start = moments.now
    tick(clock, moments, *(start + 0.5 * number for number in range(1, 17)))
    assert clock.seconds_to_next() == pytest.approx(0.5)


def test_nothing_is_known_when_the_streams_have_ended(moments: Moments) -> None:
    clock = StepClock()
    tick(clock, moments, 100.0, 100.5)
    moments.now = 101.25
    assert clock.seconds_to_next() == pytest.approx(-0.25)
    moments.now = 101.75
    assert clock.seconds_to_next() == math.inf


def test_nothing_is_known_after_a_pause(moments: Moments) -> None:
    clock = StepClock()
    tick(clock, moments, 100.0, 100.5, 105.0)
    assert clock.seconds_to_next() == math.inf


SECONDS = 30.0


@pytest.fixture
def threads() -> RequestThreads[str]:
    return RequestThreads(SECONDS)


def take_next(threads: RequestThreads[str]) -> dict[str, Ready[str]]:
    """Call until something is ready."""
    end = time.monotonic() + SECONDS
    while not (ready := threads.take(SECONDS)) and time.monotonic() < end:
        pass
    return ready


def take_all(threads: RequestThreads[str], number: str) -> Ready[str]:
    """Return everything of a request's response, once it is finished."""
    parts: list[str] = []
    while True:
        ready = take_next(threads)[number]
        parts += ready.parts
        if ready.is_finished:
            return Ready(parts, ready.last, ready.error)


def test_parts_come_in_order_and_the_last_ends_the_request(threads: RequestThreads[str]) -> None:
    def answer(send: Send[str], _: Deadline) -> str:
        send("one")
        send("two")
        return "three"

    threads.start("a", answer)
    assert take_all(threads, "a") == Ready(["one", "two"], "three")
    assert "a" not in threads


def test_a_request_does_not_wait_for_another(threads: RequestThreads[str]) -> None:
    gate = threading.Event()

    def slow(_send: Send[str], _deadline: Deadline) -> str:
        gate.wait(SECONDS)
        return "slow"

    threads.start("slow", slow)
    threads.start("quick", lambda _send, _deadline: "quick")
    assert threads.take(SECONDS).keys() == {"quick"}
    gate.set()
    assert take_all(threads, "slow").last == "slow"


def test_an_exception_is_the_end_of_its_request_only(threads: RequestThreads[str]) -> None:
    def fail(_send: Send[str], _deadline: Deadline) -> str:
        raise ZeroDivisionError

    threads.start("a", fail)
    assert isinstance(take_all(threads, "a").error, ZeroDivisionError)
    threads.start("b", lambda _send, _deadline: "fine")
    assert take_all(threads, "b").last == "fine"


def test_a_request_for_which_there_is_no_thread_is_refused_and_forgotten(
    threads: RequestThreads[str],
) -> None:
    with without_threads():
        threads.start("a", lambda _send, _deadline: "never")
    assert isinstance(threads.take(0)["a"].error, Overloaded)
    assert "a" not in threads and not threads.is_busy


def until_expired(ended: threading.Event) -> Callable[[Send[str], Deadline], str]:
    """Return an answer that sends parts until its deadline has passed."""

    def answer(send: Send[str], deadline: Deadline) -> str:
        while not deadline.passed:
            send("part")
        ended.set()
        return "end"

    return answer


def test_a_request_whose_client_has_gone_ends(threads: RequestThreads[str]) -> None:
    ended = threading.Event()
    threads.start("gone", until_expired(ended))
    assert threads.take(SECONDS)["gone"].parts
    threads.keep({"other"})
    assert ended.wait(SECONDS)
    assert "gone" not in threads
    assert threads.take(0) == {}


def test_all_requests_end_where_nobody_asks_for_their_responses() -> None:
    ended = threading.Event()
    silent = RequestThreads[str](SECONDS, silence=0.1)
    silent.start("gone", until_expired(ended))
    assert ended.wait(SECONDS)


def test_nothing_is_ready_at_first(threads: RequestThreads[str]) -> None:
    assert threads.take(0) == {}


def test_a_call_returns_before_the_next_step_for_requests_that_came_meanwhile(
    threads: RequestThreads[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(_send: Send[str], deadline: Deadline) -> str:
        while not deadline.passed:
            gate.wait(0.01)
        return "end"

    gate = threading.Event()
    threads.start("a", answer)
    monkeypatch.setattr(StepClock, "seconds_to_next", lambda _: LEAD_SECONDS + 0.01)
    assert threads.take(SECONDS) == {}
    threads.keep(())


def test_a_call_waits_for_a_quarter_of_its_time_while_a_step_is_late(
    threads: RequestThreads[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def answer(_send: Send[str], _deadline: Deadline) -> str:
        gate.wait(SECONDS)
        return "end"

    monkeypatch.setattr(StepClock, "seconds_to_next", lambda _: LEAD_SECONDS - 0.001)
    threads.start("a", answer)
    threading.Timer(2.0, gate.set).start()
    assert threads.take(4.0) == {}
    assert threads.take(SECONDS)["a"].last == "end"


def test_the_first_part_of_a_stream_is_known_as_such(threads: RequestThreads[str]) -> None:
    taken = threading.Event()

    def answer(send: Send[str], _deadline: Deadline) -> str:
        send("one")
        taken.wait(SECONDS)
        send("two")
        return "three"

    threads.start("a", answer)
    assert threads.take(SECONDS)["a"].is_first
    taken.set()
    assert not threads.take(SECONDS)["a"].is_first


def test_requests_that_begin_in_the_same_step_yield_once(
    threads: RequestThreads[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    yields, clock = list[float](), Clock()
    clock.now = 1000.0
    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.setattr("time.sleep", yields.append)
    counts = []
    for seconds in (0, SAME_STEP / 2, SAME_STEP, SAME_STEP / 2):
        clock.now += seconds
        threads._yield_once_a_step()
        counts.append(len(yields))
    assert counts == [1, 1, 2, 2]
