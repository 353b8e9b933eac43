"""Explanations of the token in the place of a mask.

`target` is a word or token, by default the most likely one. Of a text with several masks it is
explained in the place of the first one, or of another: `{"mask": 1, "token": "london"}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...config.messages import quote
from ...errors import BadRequest
from ...tasks.base import Label
from ...tasks.bases.labels import softmax
from ...tasks.fill_mask import Task
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, TextExplanationTarget
from .base import as_integer, require_keys


class TokenTarget(Label):
    """A token in the place of a mask, by the number of the mask; its label is the token's text."""

    mask: int
    token: int


class TokenExplanation(Explanation):
    """Why a token fits in the place of a mask."""

    prediction: Label
    target: TokenTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the logit of one token in the place of one mask."""

    results = TokenExplanation
    example_target = "london"

    def select(self, state: RequestState) -> list[AttributionTarget]:
        mask, token = self._target(state)
        position = self.task.mask_positions(state.rows[0])[mask]
        score = float(state.outputs[0]["logits"][mask, token])
        return [
            AttributionTarget(
                state.rows[0], self.segments(state), "logits", (position, token), score
            )
        ]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        mask, token = self._target(state)
        scores = softmax(state.outputs[0]["logits"][mask])
        return {
            "prediction": self._label(int(scores.argmax()), scores),
            "target": {**self._label(token, scores), "mask": mask, "token": token},
        }

    def _target(self, state: RequestState) -> tuple[int, int]:
        """Return the number of a mask, and a token."""
        logits, target, mask = state.outputs[0]["logits"], state.settings.target, 0
        if isinstance(target, Mapping):
            require_keys(target, "mask", "token")
            mask, target = as_integer(target["mask"], "mask", len(logits)), target["token"]
        return mask, int(np.argmax(logits[mask])) if target is None else self._token(target)

    def _token(self, word: Any) -> int:
        token = self.task.token_of(word) if isinstance(word, str) else None
        if token is None:
            raise BadRequest(f"target {quote(word)} is no token of this model; send a word.")
        return token

    def _label(self, token: int, scores: npt.NDArray[np.float64]) -> Label:
        return {
            "label": str(self.task.tokenizer.decode([token])),
            "score": float(scores[token]),
        }
