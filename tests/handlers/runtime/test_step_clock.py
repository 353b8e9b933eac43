from __future__ import annotations

import math

import pytest

from handlers.runtime import step_clock
from handlers.runtime.step_clock import StepClock


class Moments:
    """A clock that is set by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    own = Moments()
    monkeypatch.setattr(step_clock, "time", own)
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
