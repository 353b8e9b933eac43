"""The likeliest answer spans in one window of a question and its context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.activations import softmax

Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def probabilities(logits: npt.NDArray[Any], allowed: Mask) -> Scores:
    """Return softmax over the allowed tokens; 0 for the others. Shape: (tokens,)."""
    return softmax(np.where(allowed, logits, -np.inf))


def best_spans(
    start: Scores, end: Scores, *, longest: int, count: int
) -> Iterator[tuple[int, int, float]]:
    """Yield (first token, last token, joint probability) of the best spans, best first.

    Only the `longest` diagonals of the outer product are computed, not the whole square.

    Args:
        start: probability of each token to be the first. Shape: (tokens,).
        end: probability of each token to be the last. Shape: (tokens,).
        longest: tokens that a span may have.
        count: spans wanted.
    """
    width = min(longest, len(start))
    ends = np.lib.stride_tricks.sliding_window_view(np.pad(end, (0, width - 1)), width)
    joint = (start[:, None] * ends).ravel()
    found = min(count, joint.size)
    top = np.argpartition(-joint, found - 1)[:found]
    for flat in top[np.argsort(-joint[top], kind="stable")]:
        if joint[flat] > 0:
            first, more = divmod(int(flat), width)
            yield first, first + more, float(joint[flat])
