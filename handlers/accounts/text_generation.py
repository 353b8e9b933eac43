"""Which prompt tokens led to each produced token.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from handlers.accounts.base import BaseAccount, normalised, sums, words_of
from handlers.aims import Aim, Attribution
from handlers.attempts import attempt
from handlers.cases import Case
from handlers.deadline import DeadlinePassed
from handlers.errors import BadRequest, RequestError, RequestTooLarge
from handlers.explainers.base import Subject
from handlers.explaining import finished, method_for, timed_out
from handlers.llm_attribution import Story, Values
from handlers.pieces import Piece, cut
from handlers.tasks.text_generation import Task
from handlers.texts import check_text


class Account(BaseAccount[Task]):
    """Explains the log-probability of every produced token, and of the whole text."""

    usual_method = "feature_ablation"
    usual_parameters = {"max_new_tokens": 10}

    def explain(
        self, cases: Sequence[Case], subject: Subject
    ) -> list[dict[str, Any] | RequestError]:
        return [attempt(self._explain, case, subject) for case in cases]

    def aims(self, case: Case) -> list[Aim]:
        pieces = cut(case.rows[0], [case.query.prompt], case.settings.granularity)
        return [Aim(case.rows[0], pieces, "logits", ())]

    def tell(
        self, case: Case, aims: Sequence[Aim], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        whole, *tokens = attributions
        return {
            **words_of(aims[0]),
            "importances": normalised(whole),
            "delta": whole.delta,
            **sums(whole),
            "tokens": [
                {
                    "score": float(np.exp(token.output)),
                    "importances": normalised(token),
                    "delta": token.delta,
                }
                for token in tokens
            ],
        }

    def _explain(self, case: Case, subject: Subject) -> dict[str, Any]:
        method = method_for(case.settings, self, subject)
        target = self._target(case)
        story = Story(subject, self.task.tokenizer, case.rows[0], target, case.settings)
        try:
            values = story.attribute(method)
            behind, blank = story.log_probabilities()
        except DeadlinePassed:
            raise timed_out(method, subject.deadline.seconds) from None
        aim = self.aims(case)[0]
        told = self.tell(case, [aim], _attributions(values, behind, blank, aim.pieces))
        for token, number in zip(told["tokens"], target, strict=False):
            token["token"] = self.task.tokenizer.decode([number])
        text = self.task.tokenizer.decode(target, skip_special_tokens=True)
        told |= {
            "prediction": self.task.decode(case.query, case.rows, case.outputs)[0],
            "target": {"label": text, "score": float(np.exp(behind.sum()))},
        }
        return finished(told, method)

    def _target(self, case: Case) -> list[int]:
        wanted = case.settings.target
        if wanted is None:
            ids: list[int] = case.outputs[0]["sequences"][0].tolist()
        else:
            text = check_text(wanted, "target", self.task.longest_text)
            ids = self.task.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids:
            raise BadRequest("The model produces nothing for this prompt; give a target text.")
        limit = self.task.checkpoint.limit
        if limit and len(case.rows[0]) + len(ids) > limit:
            raise RequestTooLarge(
                f"prompt and target have {len(case.rows[0]) + len(ids):,} tokens, and this model "
                f"takes {limit:,}; shorten one of them."
            )
        return ids


def _attributions(
    values: Values, behind: Values, blank: Values, pieces: Sequence[Piece]
) -> list[Attribution]:
    """Return the attribution of the whole text and, if the method gives it, of each token."""
    joined = np.stack([values[:, list(piece.tokens)].sum(axis=1) for piece in pieces], axis=1)
    whole = Attribution(joined.sum(axis=0), float(behind.sum()), float(blank.sum()))
    if len(joined) != len(behind):
        return [whole]
    rows = zip(joined, behind.tolist(), blank.tolist(), strict=True)
    return [whole, *(Attribution(*row) for row in rows)]
