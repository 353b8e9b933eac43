"""Vectors in JSON."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hf_serve.handlers.types.embeddings import as_list

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(FLOAT32, min_size=1))
def test_decimals_are_read_as_the_float32_numbers_that_they_stand_for(numbers: list[float]) -> None:
    vector = np.array(numbers, dtype=np.float32)

    assert np.array_equal(np.array(as_list(vector), dtype=np.float32), vector)


def test_decimals_have_at_most_nine_digits() -> None:
    vector = np.random.default_rng(0).normal(0, 0.05, 1000).astype(np.float32)

    digits = [
        repr(abs(number)).split("e")[0].replace(".", "").lstrip("0") for number in as_list(vector)
    ]

    assert max(map(len, digits)) <= 9


def test_integers_and_the_shape_stay() -> None:
    assert as_list(np.array([[1, -2], [3, 4]], dtype=np.int8)) == [[1, -2], [3, 4]]
    assert as_list(np.array([[0.5], [0.0]], dtype=np.float16)) == [[0.5], [0.0]]
