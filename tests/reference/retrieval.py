"""How well vectors find the passage that has the answer of each question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_serve.demo_models.synthetic_text.passages import asked, passages

PASSAGES = passages()
QUESTIONS = [row.question for _, row in asked()]
# The number of the passage that has the answer.
RIGHT = [number for number, _ in asked()]
CUT = 10


def ndcg(questions: Sequence[Any], texts: Sequence[Any]) -> float:
    """Return nDCG@10 of the ranking by cosine, where one passage is relevant for each question.

    Args:
        questions: the vectors of the questions.
        texts: the vectors of the passages.
    """
    similar = _normalized(questions) @ _normalized(texts).T
    ranks = (similar > similar[range(len(RIGHT)), RIGHT][:, None]).sum(1)
    return float(np.where(ranks < CUT, 1 / np.log2(ranks + 2), 0).mean())


def _normalized(vectors: Sequence[Any]) -> Any:
    found = np.asarray(vectors, np.float64)
    return found / np.linalg.norm(found, axis=1, keepdims=True)
