"""The choice among spans, beside one that compares each span with all that were chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hf_serve.handlers.errors import RequestTooLarge
from hf_serve.handlers.tasks.zero_shot_token_classification import (
    MAX_CANDIDATES,
    WordSpan,
    best_spans,
    joined,
    spans_of_widths,
    spans_of_words,
)
from tests.sentences import refused


def overlap(one: WordSpan, other: WordSpan, *, flat: bool, multi_label: bool) -> bool:
    if (one.first, one.last) == (other.first, other.last):
        return not multi_label
    apart = one.first > other.last or other.first > one.last
    within = (one.first <= other.first and other.last <= one.last) or (
        other.first <= one.first and one.last <= other.last
    )
    return not apart and (flat or not within)


def chosen_one_by_one(
    spans: Sequence[WordSpan], *, flat: bool, multi_label: bool
) -> list[WordSpan]:
    kept: list[WordSpan] = []
    for span in sorted(spans, key=lambda each: -each.score):
        if not any(overlap(span, each, flat=flat, multi_label=multi_label) for each in kept):
            kept.append(span)
    return sorted(kept, key=lambda each: each.first)


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_the_best_spans_are_those_that_are_chosen_one_by_one(flat: bool, multi_label: bool) -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        firsts, widths = random.integers(0, 20, 60), random.integers(0, 8, 60)
        spans = [
            WordSpan(int(first), int(min(first + width, 19)), int(label), float(score))
            for first, width, label, score in zip(
                firsts, widths, random.integers(0, 3, 60), random.random(60), strict=True
            )
        ]
        spans = list({(each.first, each.last, each.label): each for each in spans}.values())
        found = best_spans(spans, 20, flat=flat, multi_label=multi_label)
        assert found == chosen_one_by_one(spans, flat=flat, multi_label=multi_label)
        assert len(found) > 2


def test_a_span_ends_within_the_text() -> None:
    logits = np.full((3, 2, 1), 9.0, dtype=np.float32)
    places, _ = spans_of_widths(logits, 0.5)
    assert places.tolist() == [[0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 2, 0], [2, 2, 0]]


def test_a_span_of_words_is_as_sure_as_its_least_sure_word() -> None:
    logits = np.full((4, 1, 3), -9.0, dtype=np.float32)
    logits[:3, 0, 2] = [4.0, 1.0, 4.0]
    logits[0, 0, 0] = logits[2, 0, 1] = logits[3, 0, 1] = 3.0
    places, scores = spans_of_words(logits, 0.5)
    assert places.tolist() == [[0, 2, 0]]
    assert scores == pytest.approx([1 / (1 + np.exp(-1.0))])


def test_too_many_spans_above_the_threshold_are_refused() -> None:
    logits = np.zeros((200, 12, 100), dtype=np.float32)
    with refused(RequestTooLarge, 200_000, "threshold"):
        spans_of_widths(logits, 0.0)
    words = np.full((700, 1, 3), 9.0, dtype=np.float32)
    with refused(RequestTooLarge, MAX_CANDIDATES, "threshold"):
        spans_of_words(words, 0.0)


def test_a_span_at_the_border_of_a_window_is_left_to_the_window_that_has_all_of_it() -> None:
    # Words 0 to 5 and 4 to 9: "4 5 6" is cut in the first window, and "4" begins the second.
    first = np.array([[1, 2, 0], [4, 5, 0], [3, 5, 0]]), np.array([0.9, 0.99, 0.7])
    second = np.array([[0, 2, 0], [0, 0, 0], [4, 5, 0]]), np.array([0.8, 0.6, 0.9])
    found = list(joined([(0, 6, False, first), (4, 6, True, second)]))
    assert [(span.first, span.last) for span in found] == [(1, 2), (3, 5), (4, 6), (8, 9)]
