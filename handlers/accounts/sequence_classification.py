"""Why a text got a label.

`target` is a class number or a label's name; the answer has the old example's `words`,
`importances` and `delta`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from handlers.accounts.base import BaseAccount, aim_at, normalised, sums, words_of
from handlers.aims import Aim, Attribution
from handlers.cases import Case
from handlers.pieces import cut
from handlers.tasks.sequence_classification import Task


class Account(BaseAccount[Task]):
    """Explains the logit of one class."""

    def aims(self, case: Case) -> list[Aim]:
        texts = [text for text in case.query.text if text is not None]
        pieces = cut(case.rows[0], texts, case.settings.granularity)
        return [aim_at(case, 0, pieces, "logits", (self._target(case),))]

    def tell(
        self, case: Case, aims: Sequence[Aim], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        scores = self.task.scores(case.query, case.outputs[0])
        target, found = aims[0].index[0], attributions[0]
        return {
            **words_of(aims[0]),
            "importances": normalised(found),
            "delta": found.delta,
            **sums(found),
            "prediction": self._named(int(scores.argmax()), scores),
            "target": {**self._named(target, scores), "index": target},
        }

    def _target(self, case: Case) -> int:
        if case.settings.target is not None:
            return self.label_number(case.settings.target)
        return int(np.argmax(case.outputs[0]["logits"]))

    def _named(self, number: int, scores: Any) -> dict[str, Any]:
        return {"label": self.task.checkpoint.labels[number], "score": float(scores[number])}
