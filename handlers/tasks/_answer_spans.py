"""Answers in the windows of a context, from the scores of their first and last tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.batching.rows import Outputs
from handlers.batching.tokenization import Window
from handlers.tasks._activations import softmax


@dataclass(frozen=True)
class AnswerReader:
    """Finds spans of a context in windows.

    Attributes:
        context: which of the row's two texts the context is, 0 or 1.
        cls: id of the token whose position stands for "no answer"; None where there is none.
    """

    context: int
    cls: int | None

    def read(
        self, row: Window, outputs: Outputs, *, max_tokens: int, count: int, align: bool
    ) -> Iterator[tuple[int, int, float]]:
        """Yield (start character, end character, probability) of a window's best spans.

        Args:
            row: the window.
            outputs: its `start_logits` and `end_logits`.
            max_tokens: the maximum number of tokens of a span.
            count: the number of spans; several can become equal when they are extended.
            align: whether spans are extended to whole words.
        """
        mask = self.mask(row)
        start, end = self._probabilities(row, outputs, mask)
        for first, last, score in best_spans(
            start * mask, end * mask, max_tokens=max_tokens, count=count
        ):
            yield *self.characters(row, first, last, align=align), score

    def no_answer_score(self, row: Window, outputs: Outputs) -> float:
        """Return the probability that a window has no answer: that of its first token."""
        return self.score(row, outputs, 0, 0)

    def score(self, row: Window, outputs: Outputs, first: int, last: int) -> float:
        """Return the joint probability of one span of tokens."""
        start, end = self._probabilities(row, outputs, self.mask(row))
        return float(start[first] * end[last])

    def mask(self, row: Window) -> Mask:
        """Return which tokens belong to the context. Shape: (tokens,)."""
        return np.array([part == self.context for part in row.encoding.sequence_ids])

    def characters(self, row: Window, first: int, last: int, *, align: bool) -> tuple[int, int]:
        """Return the character span of a token span, extended to whole words if `align` is true."""
        encoding = row.encoding
        words = (encoding.token_to_word(first), encoding.token_to_word(last))
        if not align or None in words:
            return encoding.offsets[first][0], encoding.offsets[last][1]
        spans = [encoding.word_to_chars(word, self.context) for word in words]
        return spans[0][0], spans[1][1]

    def _probabilities(self, row: Window, outputs: Outputs, mask: Mask) -> tuple[Scores, Scores]:
        allowed = mask | (np.array(row.encoding.ids) == self.cls)
        start, end = outputs["start_logits"], outputs["end_logits"]
        return probabilities(start, allowed), probabilities(end, allowed)


def merge_equal_answers(spans: Iterator[tuple[int, int, float]], text: str) -> list[dict[str, Any]]:
    """Return different answers in their order, with the sum of the scores of equal ones."""
    answers: dict[str, dict[str, Any]] = {}
    for start, end, score in spans:
        answer = {"score": 0.0, "start": start, "end": end, "answer": text[start:end]}
        answers.setdefault(text[start:end].lower(), answer)["score"] += score
    return list(answers.values())


Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def probabilities(logits: npt.NDArray[Any], allowed: Mask) -> Scores:
    """Return softmax over the allowed tokens; 0 for the others. Shape: (tokens,)."""
    return softmax(np.where(allowed, logits, -np.inf))


def best_spans(
    start: Scores, end: Scores, *, max_tokens: int, count: int
) -> Iterator[tuple[int, int, float]]:
    """Yield (first token, last token, joint probability) of the best spans, best first.

    Only the `max_tokens` diagonals of the outer product are computed, not the whole square.

    Args:
        start: probability of each token to be the first. Shape: (tokens,).
        end: probability of each token to be the last. Shape: (tokens,).
        max_tokens: the maximum number of tokens of a span.
        count: the number of spans.
    """
    width = min(max_tokens, len(start))
    ends = np.lib.stride_tricks.sliding_window_view(np.pad(end, (0, width - 1)), width)
    joint = (start[:, None] * ends).ravel()
    found = min(count, joint.size)
    top = np.argpartition(-joint, found - 1)[:found]
    for flat in top[np.argsort(-joint[top], kind="stable")]:
        if joint[flat] > 0:
            first, more = divmod(int(flat), width)
            yield first, first + more, float(joint[flat])
