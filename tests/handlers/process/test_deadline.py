from __future__ import annotations

import pytest

from hf_serve.handlers.errors import DeadlineExceeded
from hf_serve.handlers.process.deadline import NO_DEADLINE, Deadline, before
from tests.clock import Clock


def ends_after(deadline: Deadline, clock: Clock) -> float:
    """Return the time at which a deadline has passed."""
    while not deadline.passed:
        clock.now += 1
    return clock.now


def test_a_deadline_passes_after_its_seconds() -> None:
    clock = Clock()
    deadline = Deadline(10, clock)
    deadline.check_together()
    assert ends_after(deadline, clock) == 11
    with pytest.raises(DeadlineExceeded):
        deadline.check_together()


def test_a_deadline_that_starts_again_passes_later() -> None:
    clock = Clock()
    deadline = Deadline(10, clock)
    clock.now = 8
    deadline.restart()
    assert ends_after(deadline, clock) == 19


class Meanwhile(float):
    """A time; while another is added to it, another thread ends the deadline."""

    deadline: Deadline

    def __add__(self, seconds: float) -> float:
        self.deadline.expire()
        return float(self) + seconds


def test_a_deadline_that_is_ended_while_it_starts_again_stays_ended() -> None:
    """Its client has gone while a part was sent."""
    clock = Clock()
    deadline = Deadline(10, clock)
    clock.now = Meanwhile(5.0)
    Meanwhile.deadline = deadline
    deadline.restart()
    assert deadline.passed
    clock.now = 6.0
    deadline.restart()
    assert deadline.passed


def test_a_deadline_that_is_ended_ends_those_that_were_derived_from_it_alone() -> None:
    deadline = Deadline(10, Clock()).at_most(9)
    derived = [deadline.extended(50), deadline.at_most(5), deadline.share(2).extended(60)]
    other = Deadline(10, Clock())
    derived[1].expire()
    assert not deadline.passed and not derived[0].passed
    deadline.expire()
    assert all(each.passed for each in derived)
    NO_DEADLINE.at_most(5).expire()
    assert not other.passed and not NO_DEADLINE.passed


def test_a_part_of_a_deadline_ends_with_it_at_the_latest() -> None:
    for seconds, end in ((3, 12), (30, 16)):
        clock = Clock()
        deadline = Deadline(10, clock).extended(5)
        clock.now = 8
        assert ends_after(deadline.at_most(seconds), clock) == end


def test_a_share_of_a_deadline_is_a_part_of_the_time_that_is_left() -> None:
    clock = Clock()
    deadline = Deadline(10, clock)
    clock.now = 4
    share = deadline.share(2)
    assert share.seconds == 3
    assert ends_after(share, clock) == 8
    clock.now = 12
    assert deadline.share(2).seconds == 0
    assert not NO_DEADLINE.share(2).passed


def test_a_function_is_called_until_the_deadline() -> None:
    clock = Clock()
    count = before(Deadline(10, clock), len)
    assert count("four") == 4
    clock.now = 11
    with pytest.raises(DeadlineExceeded):
        count("four")


def test_without_seconds_a_deadline_never_passes() -> None:
    assert not NO_DEADLINE.passed
    assert not NO_DEADLINE.extended(5).passed
    assert NO_DEADLINE.at_most(-1).passed
