from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_serve.handlers.tasks.question_answering import best_spans, probabilities

SCORES = st.lists(st.floats(0.001, 1), min_size=1, max_size=12)


@given(SCORES, st.data(), st.integers(1, 20), st.integers(1, 40))
def test_the_best_spans_are_those_of_all_pairs(
    start: list[float], data: st.DataObject, max_tokens: int, count: int
) -> None:
    end = data.draw(st.lists(st.floats(0.001, 1), min_size=len(start), max_size=len(start)))
    pairs = [(a, b) for a in range(len(start)) for b in range(a, len(start)) if b - a < max_tokens]
    expected = sorted((start[a] * end[b] for a, b in pairs), reverse=True)[:count]
    found = list(best_spans(np.array(start), np.array(end), max_tokens=max_tokens, count=count))
    assert [score for *_, score in found] == pytest.approx(expected)
    assert {span[:2] for span in found} <= set(pairs) and len({*found}) == len(found)


def test_tokens_that_are_not_allowed_have_no_probability() -> None:
    scores = probabilities(np.array([5.0, 1.0, 1.0]), np.array([False, True, True]))
    assert scores.tolist() == [0.0, 0.5, 0.5]
