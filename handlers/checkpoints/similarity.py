"""Similarities of vectors, by the names of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

Similarity = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _dot(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return (first * second).sum(-1)


def _euclidean(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return -torch.linalg.vector_norm(first - second, dim=-1)


def _manhattan(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return -torch.linalg.vector_norm(first - second, ord=1, dim=-1)


# Each takes vectors of shape (..., size) and returns a number for each pair, the larger the more
# similar they are.
SIMILARITIES: Mapping[str, Similarity] = {
    "cosine": torch.nn.functional.cosine_similarity,
    "dot": _dot,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}
