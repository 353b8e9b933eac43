from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hf_serve.handlers.batching.padding import chunk_by_cost, text_size

COSTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=30)


@given(COSTS, st.integers(1, 100))
def test_each_item_is_in_one_wave_within_the_limit(
    items: list[tuple[int, int]], limit: int
) -> None:
    costs, owners = [cost for cost, _ in items], [owner for _, owner in items]
    found = list(chunk_by_cost(costs, limit, owners))
    assert sorted(index for wave in found for index in wave) == list(range(len(costs)))
    assert all(wave == sorted(wave) for wave in found)
    for wave in found:
        assert len(wave) == 1 or sum(costs[index] for index in wave) <= limit


def test_the_items_of_the_cheapest_owner_are_first() -> None:
    large, small, medium = 0, 1, 2
    owners = [large, small, large, medium, large]
    assert list(chunk_by_cost([1, 2, 1, 3, 9], 3, owners)) == [[1], [3], [0, 2], [4]]


def test_items_within_the_limit_are_one_wave_in_their_order() -> None:
    assert list(chunk_by_cost([5, 1, 4], 10, [0, 1, 2])) == [[0, 1, 2]]
    assert list(chunk_by_cost([], 10, [])) == []


def test_the_size_of_inputs_is_the_number_of_their_characters() -> None:
    inputs = {"question": "Who?", "context": ["Ada", {"b64": "abcd"}]}
    assert text_size(inputs) == 11
    assert text_size([1, None, True]) == 3
