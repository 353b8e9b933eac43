from __future__ import annotations

import pytest

from scripts.serving.fork_server.launcher import GREETING_SECONDS
from scripts.serving.fork_server.turns import LOADING_SECONDS, has_turn, next_turn

LONG = LOADING_SECONDS + 1
# TorchServe's limit for the start of a worker.
LATCH = 120.0


@pytest.mark.parametrize(
    ("waited", "loading", "expected"),
    [
        (0, [], True),
        (0, [1.0], True),
        (0, [1.0, 2.0], False),
        (0, [1.0, LONG], True),
        (LONG, [1.0, 2.0], True),
    ],
)
def test_a_slot_is_free_when_a_worker_has_loaded_or_takes_too_long(
    waited: float, loading: list[float], expected: bool
) -> None:
    assert has_turn(waited, loading, slots=2) is expected


def test_the_next_turn_is_when_the_first_one_has_waited_or_loaded_long_enough() -> None:
    assert next_turn([], [1.0]) is None
    assert next_turn([1.0, 2.0], [5.0]) == LOADING_SECONDS - 5
    assert next_turn([LONG], []) == 0
    assert next_turn([3.0], [LONG]) == LOADING_SECONDS - 3


def test_the_longest_wait_is_below_the_limit_of_torchserve() -> None:
    assert GREETING_SECONDS + LOADING_SECONDS < LATCH
