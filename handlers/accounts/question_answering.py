"""Why an answer starts and ends where it does.

`target` is a character span of the context `{"start": 4, "end": 8}` or, as the old example has it,
a token number for both ends; by default the predicted answer. Of a long context, the window that
holds the answer is explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.accounts.base import (
    BaseAccount,
    aim_at,
    as_integer,
    normalised,
    require_keys,
    sums,
    words_of,
)
from handlers.aims import Aim, Attribution
from handlers.cases import Case
from handlers.errors import BadRequest
from handlers.pieces import cut
from handlers.tasks.question_answering import Task
from handlers.windows import Window

SIDES = ("start", "end")


class Account(BaseAccount[Task]):
    """Explains the start logit and the end logit of one span."""

    def aims(self, case: Case) -> list[Aim]:
        row, first, last = self._span(case)
        texts = self.task.texts(case.query)
        pieces = cut(row, texts, case.settings.granularity)
        number = _number(case, row)
        return [
            aim_at(case, number, pieces, "start_logits", (first,)),
            aim_at(case, number, pieces, "end_logits", (last,)),
        ]

    def tell(
        self, case: Case, aims: Sequence[Aim], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        row, start, end = aims[0].row, *attributions
        first, last = (aim.index[0] for aim in aims)
        place = self.task.reader.characters(row, first, last, align=False)
        score = self.task.reader.score(row, case.outputs[_number(case, row)], first, last)
        return {
            **words_of(aims[0]),
            "importances_answer_start": normalised(start),
            "importances_answer_end": normalised(end),
            "delta_start": start.delta,
            "delta_end": end.delta,
            "answer_start": sums(start),
            "answer_end": sums(end),
            "converged": start.converged and end.converged,
            "prediction": self.task.answers(case.query, case.rows, case.outputs)[0],
            "target": {
                "label": case.query.context[slice(*place)],
                "score": score,
                "start": place[0],
                "end": place[1],
                "tokens": [first, last],
            },
        }

    def _span(self, case: Case) -> tuple[Window, int, int]:
        target = case.settings.target
        if target is None:
            return self._characters(case, self.task.answers(case.query, case.rows, case.outputs)[0])
        if isinstance(target, dict):
            require_keys(target, *SIDES)
            return self._characters(case, target)
        token = as_integer(target, "target", len(case.rows[0]))
        return case.rows[0], token, token

    def _characters(self, case: Case, target: dict[str, Any]) -> tuple[Window, int, int]:
        """Return the first window that holds a whole character span, and the span's tokens."""
        length = len(case.query.context) + 1
        start, end = (as_integer(target[side], f"target's {side}", length) for side in SIDES)
        for row in case.rows:
            mask = self.task.reader.mask(row)
            tokens = [
                number
                for number, (first, last) in enumerate(row.encoding.offsets)
                if mask[number] and first < end and last > start
            ]
            offsets = row.encoding.offsets
            if tokens and offsets[tokens[0]][0] <= start and offsets[tokens[-1]][1] >= end:
                return row, tokens[0], tokens[-1]
        if start == end == 0:
            return case.rows[0], 0, 0
        raise BadRequest(f"target's characters {start} to {end} hold no token of the context.")


def _number(case: Case, row: Window) -> int:
    return next(number for number, known in enumerate(case.rows) if known is row)
