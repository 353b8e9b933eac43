"""Why a token got its label.

`target` is `[token, class]`, `{"token": 1, "label": "B-PER"}` or a character span
`{"start": 0, "end": 6}` with or without a label; by default the surest token that is in an entity.
A span's tokens are explained together: the mean of their logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import BadRequest
from ...tasks.bases.labels import softmax
from ...tasks.token_classification import Task
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, Place, TextExplanationTarget, target_at, tokens_at
from .base import as_integer


class TokensTarget(Place):
    """The class that is explained, and for which tokens."""

    index: int
    tokens: list[int]


class TokenExplanation(Explanation):
    """Why tokens got a label."""

    prediction: Place
    target: TokensTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the logit of one class for one token, or for the tokens of a span."""

    results = TokenExplanation
    example_target = (1, 0)

    def select(self, state: RequestState) -> list[AttributionTarget]:
        segments = self.segments(state)
        tokens, label = self._target(state)
        return [target_at(state, 0, segments, "logits", (token, label)) for token in tokens]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        tokens, label = self._target(state)
        scores = softmax(state.outputs[0]["logits"])[tokens].mean(axis=0)
        offsets = state.rows[0].encoding.offsets
        place = {"start": offsets[tokens[0]][0], "end": offsets[tokens[-1]][1]}
        return {
            "prediction": {**self.named(state, int(scores.argmax()), scores), **place},
            "target": {
                **self.named(state, label, scores),
                "index": label,
                "tokens": tokens,
                **place,
            },
        }

    def _target(self, state: RequestState) -> tuple[list[int], int]:
        target, scores = state.settings.target, softmax(state.outputs[0]["logits"])
        if target is None:
            token = self._surest(state, scores)
            return [token], int(scores[token].argmax())
        if isinstance(target, (list, tuple)) and len(target) == 2:
            token = as_integer(target[0], "the token in target", len(scores))
            return [token], self.label_number(state, target[1])
        if isinstance(target, dict):
            tokens = tokens_at(target, state)
            label = target.get("label")
            best = int(scores[tokens].mean(axis=0).argmax())
            return tokens, best if label is None else self.label_number(state, label)
        raise BadRequest(
            'target must be [token, class], {"token": …, "label": …} or {"start": …, "end": …}.'
        )

    def _surest(self, state: RequestState, scores: Any) -> int:
        """Return the token whose label is surest, one that is ignored only if all are."""
        ignored = state.input.parameters.ignore_labels
        labels = self.task.labels_of(state.input.parameters.adapter_id)
        outside = np.array([label in ignored for label in labels])
        special = np.array(state.rows[0].encoding.special_tokens_mask, dtype=bool)
        best = np.where(outside[scores.argmax(axis=-1)], 0.0, scores.max(axis=-1))
        best = np.where(special, -1.0, best)
        return int(best.argmax())
