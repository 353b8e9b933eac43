"""Which words of a text give an entry of the vocabulary its weight.

`target` is an entry of the vocabulary, as a text or as a number; by default the one with the
largest weight.
"""

from __future__ import annotations

from typing import Any

from ...errors import BadRequest
from ...tasks.base import Label
from ...tasks.sparse_embedding import OUTPUT, Task
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, TextExplanationTarget, target_at
from .base import as_integer


class WeightTarget(Label):
    """An entry of the vocabulary, its weight and its number."""

    index: int


class WeightExplanation(Explanation):
    """Why an entry of the vocabulary has its weight."""

    prediction: WeightTarget
    target: WeightTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the weight of one entry of the vocabulary."""

    results = WeightExplanation
    example_target = "bar"

    def select(self, state: RequestState) -> list[AttributionTarget]:
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
