from __future__ import annotations

import pytest

from hf_serve.handlers.batching.sequence_packing import first_fit_decreasing


@pytest.mark.parametrize(
    ("lengths", "width", "rows"),
    [
        ([4, 6, 5, 5], 10, [[1, 0], [2, 3]]),
        ([10, 10], 10, [[0], [1]]),
        ([11, 3], 10, [[0], [1]]),
        ([6, 4, 1], 10, [[0, 1], [2]]),
    ],
)
def test_the_longest_text_comes_first_and_each_goes_into_the_first_row_that_it_fits(
    lengths: list[int], width: int, rows: list[list[int]]
) -> None:
    """Also where it fills the row to its last slot."""
    assert first_fit_decreasing(lengths, width) == rows
