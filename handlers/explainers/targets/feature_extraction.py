"""Explanations of the vectors of tokens: which words decide them.

The vectors of some tokens are explained together, by their mean. `target` says which:
`{"token": 1}` or characters `{"start": 0, "end": 6}`; by default all. What is explained of their
mean is its length, or the number of a `dimension` of it. `[token, dimension]` and `dimension` alone
are short for objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...errors import BadRequest
from ...tasks.base import Label
from ...tasks.feature_extraction import OUTPUT, Task
from ...types.request import RequestState
from ..base import AttributionTarget, TokensComparison, unit_vector
from ..bases.text import Explanation, Place, TextExplanationTarget, tokens_at
from .base import as_integer

KEYS = frozenset({"token", "start", "end", "dimension"})

Vector = npt.NDArray[np.float32]


class VectorTarget(Place):
    """What is explained of the mean of the vectors of `tokens`: its length, or a dimension."""

    index: int | None
    tokens: list[int]


class VectorExplanation(Explanation):
    """Why the mean of tokens' vectors is long, or why one of its numbers is large."""

    prediction: Label
    target: VectorTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the length of a mean of tokens' vectors, in its own direction, or a dimension."""

    results = VectorExplanation
    example_target = (1, 0)

    def select(self, state: RequestState) -> list[AttributionTarget]:
        tokens, dimension = _selected(state)
        mean = _mean(state, tokens)
        direction = _direction(mean, dimension)
        comparison = TokensComparison(torch.from_numpy(direction), tokens=tokens)
        score = float(mean @ direction)
        return [
            AttributionTarget(state.rows[0], self.segments(state), OUTPUT, (), score, comparison)
        ]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        tokens, dimension = _selected(state)
        length = float(np.linalg.norm(_mean(state, tokens)))
        return {
            "prediction": {"label": "length", "score": length},
            "target": {
                "label": "length" if dimension is None else f"dimension {dimension}",
                "score": selected.score,
                "index": dimension,
                "tokens": list(tokens),
                **_place(state, tokens),
            },
        }


def _selected(state: RequestState) -> tuple[range, int | None]:
    """Return the tokens and the dimension that the target of a state names."""
    target, (count, size) = _as_object(state.settings.target), state.outputs[0][OUTPUT].shape
    tokens, dimension = range(count), None
    if target.keys() & {"token", "start", "end"}:
        _, found = tokens_at(target, state)
        tokens = range(found[0], found[-1] + 1)
    if "dimension" in target:
        dimension = as_integer(target["dimension"], "the dimension in target", size)
    return tokens, dimension


def _as_object(target: Any) -> Mapping[str, Any]:
    if target is None:
        return {}
    if isinstance(target, int):
        return {"dimension": target}
    if isinstance(target, (list, tuple)) and len(target) == 2:
        return {"token": target[0], "dimension": target[1]}
    if isinstance(target, dict) and target and target.keys() <= KEYS:
        return target
    raise BadRequest(
        'target must be a dimension, [token, dimension], {"token": …} or {"start": …, "end": …},'
        ' both with or without "dimension".'
    )


def _place(state: RequestState, tokens: range) -> dict[str, int]:
    """Return the characters that tokens stand for; none if all of them are special."""
    encoding = state.rows[0].encoding
    special = encoding.special_tokens_mask
    offsets = [encoding.offsets[token] for token in tokens if not special[token]]
    return {
        "start": min((start for start, _ in offsets), default=0),
        "end": max((end for _, end in offsets), default=0),
    }


def _mean(state: RequestState, tokens: range) -> Vector:
    vectors = state.outputs[0][OUTPUT][tokens.start : tokens.stop]
    mean: Vector = vectors.mean(axis=0, dtype=np.float32)
    return mean


def _direction(mean: Vector, dimension: int | None) -> Vector:
    """Return the direction along which a mean is explained: its own, or a dimension."""
    if dimension is None:
        return unit_vector(mean)
    direction = np.zeros_like(mean)
    direction[dimension] = 1
    return direction
