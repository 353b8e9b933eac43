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
        row, tokens, label = self._target(state)
        segments = self.segments(state, row)
        return [target_at(state, row, segments, "logits", (token, label)) for token in tokens]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        row, tokens, label = self._target(state)
        scores = softmax(state.outputs[row]["logits"])[tokens].mean(axis=0)
        offsets = state.rows[row].encoding.offsets
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

    def _target(self, state: RequestState) -> tuple[int, list[int], int]:
        """Return the number of a window of the text, tokens of it, and a class."""
        target, scores = state.settings.target, softmax(state.outputs[0]["logits"])
        if target is None:
            row, token = self._surest(state)
            return row, [token], int(state.outputs[row]["logits"][token].argmax())
        if isinstance(target, (list, tuple)) and len(target) == 2:
            token = as_integer(target[0], "the token in target", len(scores))
            return 0, [token], self.label_number(state, target[1])
        if isinstance(target, dict):
            row, tokens = tokens_at(target, state)
            label = target.get("label")
            best = int(softmax(state.outputs[row]["logits"])[tokens].mean(axis=0).argmax())
            return row, tokens, best if label is None else self.label_number(state, label)
        raise BadRequest(
            'target must be [token, class], {"token": …, "label": …} or {"start": …, "end": …}.'
        )

    def _surest(self, state: RequestState) -> tuple[int, int]:
        """Return the window and the token whose label is surest.

        It is a token that is ignored only if all are.
        """
        ignored = state.input.parameters.ignore_labels
        labels = self.task.labels_of(state.input.parameters.adapter_id)
        outside = np.array([label in ignored for label in labels])
        found = []
        for row, outputs in zip(state.rows, state.outputs, strict=True):
            scores = softmax(outputs["logits"])
            special = np.array(row.encoding.special_tokens_mask, dtype=bool)
            best = np.where(outside[scores.argmax(axis=-1)], 0.0, scores.max(axis=-1))
            found.append(np.where(special, -1.0, best))
        row_number = max(range(len(found)), key=lambda number: found[number].max())
        return row_number, int(found[row_number].argmax())
