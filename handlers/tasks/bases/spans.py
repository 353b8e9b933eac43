"""Spans of words, chosen by their scores among those that overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import RequestTooLarge
from .labels import sigmoid

# Spans above the threshold of a request, among which the best are chosen one by one.
MAX_CANDIDATES = 200_000
# Lines of the logits of a word by its place in a span.
FIRST, LAST, INSIDE = range(3)

Logits = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float32]
# First word, last word and label of spans, and the score of each.
Found = tuple[npt.NDArray[np.int64], Scores]


@dataclass(frozen=True)
class WordSpan:
    """A span of words with its label; `last` is the number of its last word.

    Attributes:
        label: the number of its label.
    """

    first: int
    last: int
    label: int
    score: float


def spans_of_widths(logits: Logits, threshold: float) -> Found:
    """Return the spans of a window above a threshold, by the logits of each first word and width.

    Args:
        logits: Shape: (words, widths, labels).

    Raises:
        RequestTooLarge: there are too many.
    """
    scores = _scores(logits)
    count = len(scores)
    places = np.argwhere(scores > threshold)
    places = places[places[:, 0] + places[:, 1] < count]
    check_candidates(len(places))
    first, width, label = places.T
    return np.stack([first, first + width, label], 1), scores[tuple(places.T)]


def spans_of_words(logits: Logits, threshold: float) -> Found:
    """Return the spans of a window above a threshold, by the logits of each word of a span.

    A span is as sure as the least sure of its words, of which the first and the last are read
    twice: as such, and as any word of it.

    Args:
        logits: Shape: (words, labels, 3).

    Raises:
        RequestTooLarge: there are too many.
    """
    scores = _scores(logits)
    places: list[tuple[int, int, int]] = []
    found: list[float] = []
    for first, label in np.argwhere(scores[..., FIRST] > threshold).tolist():
        inside = scores[first:, label, INSIDE]
        outside = np.flatnonzero(inside < threshold)
        run = inside[: outside[0]] if len(outside) else inside
        last = np.flatnonzero(scores[first : first + len(run), label, LAST] > threshold)
        least = np.minimum.accumulate(run)[last]
        least = np.minimum(least, scores[first, label, FIRST])
        least = np.minimum(least, scores[first + last, label, LAST])
        places += [(first, int(each), label) for each in first + last]
        found += least.tolist()
        check_candidates(len(places))
    return np.array(places, dtype=np.int64).reshape(-1, 3), np.array(found, dtype=np.float32)


def _scores(logits: Logits) -> Scores:
    """Return probabilities in float32: of two that are equal there, the first span is better."""
    return sigmoid(logits).astype(np.float32)


def check_candidates(count: int) -> None:
    """Check how many spans are above a threshold.

    Raises:
        RequestTooLarge: there are too many.
    """
    if count > MAX_CANDIDATES:
        raise RequestTooLarge(
            f"{count:,} spans are above the threshold, and this model takes {MAX_CANDIDATES:,};"
            " send a higher threshold, or fewer labels."
        )


def best_spans(
    candidates: Iterable[WordSpan], words: int, *, flat: bool, multi_label: bool
) -> list[WordSpan]:
    """Return the best of spans that overlap, in the order of their first words.

    The best span is taken first, and spans that overlap with it are left out; then the best of the
    others, and so on.

    Args:
        words: the number of words of the text.
        flat: whether a span within another one overlaps with it, too.
        multi_label: whether a span may have several labels.
    """
    chosen = _Flat(words) if flat else _Nested(words)
    taken: set[tuple[int, int]] = set()
    kept = []
    for span in sorted(candidates, key=lambda span: -span.score):
        place = (span.first, span.last)
        is_free = multi_label if place in taken else chosen.is_free(*place)
        if is_free:
            taken.add(place)
            chosen.take(*place)
            kept.append(span)
    return sorted(kept, key=lambda span: span.first)


def best_spans_of_labels(
    candidates: Iterable[WordSpan], words: int, *, flat: bool
) -> list[WordSpan]:
    """Return the best of spans that overlap and have the same label.

    The arguments are the arguments of :func:`best_spans`.
    """
    of_labels: dict[int, list[WordSpan]] = {}
    for span in candidates:
        of_labels.setdefault(span.label, []).append(span)
    kept = (
        span
        for _, found in sorted(of_labels.items())
        for span in best_spans(found, words, flat=flat, multi_label=False)
    )
    return sorted(kept, key=lambda span: span.first)


class _Flat:
    """The words of spans, none of which is in two of them."""

    def __init__(self, words: int) -> None:
        self._taken = np.zeros(words, dtype=bool)

    def is_free(self, first: int, last: int) -> bool:
        return not self._taken[first : last + 1].any()

    def take(self, first: int, last: int) -> None:
        self._taken[first : last + 1] = True


class _Nested:
    """Spans, of which one may be within another, and none begins in another and ends behind it."""

    def __init__(self, words: int) -> None:
        # The last word of the longest span that begins with a word, and the first of one that ends.
        self._last = np.full(words, -1)
        self._first = np.full(words, words)

    def is_free(self, first: int, last: int) -> bool:
        crosses = (self._last[first + 1 : last + 1] > last).any()
        return not (crosses or (self._first[first:last] < first).any())

    def take(self, first: int, last: int) -> None:
        self._last[first] = max(self._last[first], last)
        self._first[last] = min(self._first[last], first)


def joined(windows: Sequence[tuple[int, int, bool, Found]]) -> Iterator[WordSpan]:
    """Yield the spans of all windows of a text by the numbers of the words in the text.

    Of a span in two windows, the better score is kept. A span that touches the border of a window
    may go on behind it: where the next window has all of it, that one decides.

    Args:
        windows: the first word and the number of words of each, whether it is the last one, and its
            spans.
    """
    found: dict[tuple[int, int, int], float] = {}
    for number, (start, count, is_last, (places, scores)) in enumerate(windows):
        following = None if is_last else windows[number + 1][0] - start
        before = None
        if number:
            before = windows[number - 1][0] + windows[number - 1][1] - start
        for (first, last, label), score in zip(places.tolist(), scores.tolist(), strict=True):
            if following is not None and last == count - 1 and first >= following:
                continue
            if before is not None and first == 0 and last < before:
                continue
            key = (start + first, start + last, label)
            found[key] = max(score, found.get(key, 0.0))
    for (first, last, label), score in found.items():
        yield WordSpan(first, last, label, score)
