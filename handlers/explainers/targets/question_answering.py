"""Why an answer starts and ends where it does.

`target` is a character span of the context `{"start": 4, "end": 8}` or, as the old example has it,
a token number for both ends; by default the predicted answer. Of a long context, the window that
holds the answer is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...batching.rows import Row
from ...batching.tokenization import Window
from ...errors import BadRequest
from ...tasks.question_answering import AnswerSpan, Task
from ...types.request import RequestState
from ..base import Attribution, AttributionTarget
from ..bases.text import (
    Place,
    Segments,
    Sums,
    TextExplanationTarget,
    attribution_sums,
    normalized,
    segment_texts,
    target_at,
)
from ..page import View, text_view
from .base import as_integer, require_keys

SIDES = ("start", "end")


class SpanTarget(Place):
    """The span that is explained: its text, and its first and last token."""

    tokens: tuple[int, int]


class SpanExplanation(Segments):
    """Why an answer starts and ends where it does."""

    importances_answer_start: list[float]
    importances_answer_end: list[float]
    delta_start: float
    delta_end: float
    answer_start: Sums
    answer_end: Sums
    prediction: AnswerSpan
    target: SpanTarget


class ExplanationTarget(TextExplanationTarget[Task]):
    """Explains the start logit and the end logit of one span."""

    results = SpanExplanation
    example_target = {"start": 0, "end": 4}

    legacy_keys = (
        "words",
        "importances_answer_start",
        "importances_answer_end",
        "delta_start",
        "delta_end",
    )

    def texts(self, state: RequestState, number: int) -> Sequence[str]:
        return self.task.texts(state.input)

    def select(self, state: RequestState) -> list[AttributionTarget]:
        row, first, last = self._span(state)
        number = _number(state, row)
        segments = self.segments(state, number)
        return [
            target_at(state, number, segments, "start_logits", (first,)),
            target_at(state, number, segments, "end_logits", (last,)),
        ]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[AttributionTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        start, end = attributions
        number = _number(state, selected[0].row)
        row = state.rows[number]
        first, last = (selected_target.index[0] for selected_target in selected)
        place = self.task.reader.characters(row, first, last, align=False)
        score = self.task.reader.score(row, state.outputs[number], first, last)
        return {
            **segment_texts(selected[0]),
            "importances_answer_start": normalized(start),
            "importances_answer_end": normalized(end),
            "delta_start": start.delta,
            "delta_end": end.delta,
            "answer_start": attribution_sums(start),
            "answer_end": attribution_sums(end),
            "converged": start.converged and end.converged,
            "prediction": self.task.answers(state.input, state.rows, state.outputs)[0],
            "target": {
                "label": state.input.context[slice(*place)],
                "score": score,
                "start": place[0],
                "end": place[1],
                "tokens": [first, last],
            },
        }

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        for side in SIDES:
            importances = explanation[f"importances_answer_{side}"]
            yield text_view(f"Importance for the {side} of the answer", explanation, importances)

    def _span(self, state: RequestState) -> tuple[Window, int, int]:
        target = state.settings.target
        if target is None:
            return self._characters(
                state, self.task.answers(state.input, state.rows, state.outputs)[0]
            )
        if isinstance(target, dict):
            require_keys(target, *SIDES)
            return self._characters(state, target)
        token = as_integer(target, "target", len(state.rows[0]))
        return state.rows[0], token, token

    def _characters(self, state: RequestState, target: dict[str, Any]) -> tuple[Window, int, int]:
        """Return the first window that holds a whole character span, and the span's tokens."""
        length = len(state.input.context) + 1
        named = [as_integer(target[side], f"target's {side}", length) for side in SIDES]
        start, end = _without_spaces(state.input.context, *named)
        is_blank = not state.input.context[start:end].strip()
        for row in state.rows:
            offsets = row.encoding.offsets
            tokens = self._tokens_at(row, start, end)
            holds = tokens and offsets[tokens[0]][0] <= start and offsets[tokens[-1]][1] >= end
            if holds or (tokens and is_blank):
                return row, tokens[0], tokens[-1]
        if not any(named):
            return state.rows[0], 0, 0
        raise BadRequest(
            f"target's characters {named[0]} to {named[1]} hold no token of the context."
        )

    def _tokens_at(self, row: Window, start: int, end: int) -> list[int]:
        """Return the tokens of the context in some characters; tokens of spaces have none."""
        mask = self.task.reader.mask(row)
        places = [(number, *each) for number, each in enumerate(row.encoding.offsets)]
        places = [each for each in places if mask[each[0]]]
        return [number for number, first, last in places if first < end and last > start] or [
            number for number, first, last in places if start <= first == last <= end
        ]


def _without_spaces(text: str, start: int, end: int) -> tuple[int, int]:
    """Return characters without the spaces around them, which no token may hold."""
    part = text[start:end]
    if not part.strip():
        return start, end
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _number(state: RequestState, row: Row) -> int:
    return next(number for number, known in enumerate(state.rows) if known is row)
