"""Which words of a text give an entry of the vocabulary its score.

`target` is a token, by default the one with the highest score. In the place of a mask it is a word;
of a text with several masks it is explained in the place of the first one, or of another:
`{"mask": 1, "token": "london"}`. Of a sparse embedding it is a text or a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...config.messages import quote
from ...errors import BadRequest, Unprocessable
from ...tasks import fill_mask, sparse_embedding
from ...tasks.base import Label
from ...tasks.bases.labels import softmax
from ...tasks.sparse_embedding import OUTPUT
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, TextExplanationTarget, target_at
from .base import as_integer, require_keys


class TokenTarget(Label):
    """A token in the place of a mask, by the number of the mask; its label is the token's text."""

    mask: int
    token: int


class TokenExplanation(Explanation):
    """Why a token fits in the place of a mask."""

    prediction: Label
    target: TokenTarget


class MaskTarget(TextExplanationTarget[fill_mask.Task]):
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


class WeightTarget(Label):
    """An entry of the vocabulary, its weight and its number."""

    index: int


class WeightExplanation(Explanation):
    """Why an entry of the vocabulary has its weight."""

    prediction: WeightTarget
    target: WeightTarget


class EntryTarget(TextExplanationTarget[sparse_embedding.Task]):
    """Explains the weight of one entry of the vocabulary."""

    results = WeightExplanation
    example_target = "bar"

    def select(self, state: RequestState) -> list[AttributionTarget]:
        if not state.outputs:
            raise Unprocessable(
                "The weights of a query are in a table of this model, so that there is nothing to"
                " explain; send input_type: document."
            )
        return [target_at(state, 0, self.segments(state), OUTPUT, (self._entry(state),))]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        return {
            "prediction": self._weight(state, int(state.outputs[0][OUTPUT].argmax())),
            "target": self._weight(state, selected.index[0]),
        }

    def _entry(self, state: RequestState) -> int:
        target, weights = state.settings.target, state.outputs[0][OUTPUT]
        if target is None:
            return int(weights.argmax())
        if not isinstance(target, str):
            return as_integer(target, "target", len(weights))
        known = self.task.tokenizer.get_vocab().get(target)
        if known is None or known >= len(weights):
            raise BadRequest("target is no entry of this model's vocabulary; send one.")
        return int(known)

    def _weight(self, state: RequestState, index: int) -> WeightTarget:
        score = float(state.outputs[0][OUTPUT][index])
        return {"label": self.task.token(index), "score": score, "index": index}
