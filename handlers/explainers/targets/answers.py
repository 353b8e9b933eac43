"""Which words make a model answer with a span of a text, or with cells of a table.

`target` is, for

- a span: a character span of the context `{"start": 4, "end": 8}` or, as the old example has it, a
  token number for both ends; by default the predicted answer. Of a long context, the window that
  holds the answer is explained.
- cells: a list of them, `[[row, column]]`, as the `coordinates` of an answer. By default it is the
  cells of the answer, or the most probable cell where there are none. Of several questions, the
  first is explained, or the one of `{"query": 1, "coordinates": [[row, column]]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from ...batching.padding import Tensors
from ...batching.rows import Row
from ...batching.tokenization import Window, tokenize
from ...config.messages import quote
from ...errors import BadRequest, RequestError, Unprocessable
from ...tasks import question_answering, table_question_answering
from ...tasks.question_answering import AnswerSpan
from ...tasks.table_question_answering import (
    PREVIOUS,
    Table,
    TableAnswer,
    cell_probabilities,
    place_of,
)
from ...tasks.table_question_answering import Place as Cell
from ...types.parameters import Granularity
from ...types.request import RequestState
from ..base import Attribution, AttributionTarget, Comparison, ExplainedModel, Forward
from ..bases.text import (
    Explanation,
    Place,
    Segment,
    Segments,
    Sums,
    TextExplanationTarget,
    attribution_sums,
    normalized,
    segment_texts,
    segment_tokens,
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


class AnswerSpanTarget(TextExplanationTarget[question_answering.Task]):
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


OUTPUT = "logits"
FORM = "[[row, column]]"
# Row and column; no row for the name of a column, and None for a token of the question.
Coordinates = tuple[int | None, int] | None


@dataclass(frozen=True)
class TableSegments:
    """The segments of a row, and what they are segments of.

    Attributes:
        segments: the segments, with character offsets in one of the texts each.
        texts: the question, and the names and cells that the row has, in its order.
        coordinates: the place of each segment in the table.
    """

    segments: list[Segment]
    texts: list[str]
    coordinates: list[Coordinates]


class CellsTarget(TypedDict):
    """The cells that are explained; `score` is the mean of their probabilities."""

    answer: str
    coordinates: list[list[int]]
    score: float


class TableExplanation(Explanation):
    """Why a model selects cells.

    `texts` are the question, the names of the columns and the cells, and `sequence_ids` are their
    numbers. `coordinates` has the row and column of each word: no row for the name of a column, and
    null for words of the question.
    """

    texts: list[str]
    coordinates: list[Coordinates]
    prediction: TableAnswer
    target: CellsTarget


class AnswerCellsTarget(TextExplanationTarget[table_question_answering.Task]):
    """Explains the mean probability of cells.

    The model selects one column, and gives all cells of other columns the same logit, far below
    zero. That is a probability of 0, but a jump without gradients, so words are left out instead.
    """

    results = TableExplanation
    example_target = ((0, 0),)
    default_method = "feature_ablation"

    def attribute(
        self, states: Sequence[RequestState], model: ExplainedModel
    ) -> list[dict[str, Any] | RequestError]:
        return super().attribute(states, replace(model, forward=_to_probabilities(model.forward)))

    def select(self, state: RequestState) -> list[AttributionTarget]:
        number = _question(state)
        row = self.task.row_as_read(state.rows, state.outputs, number)
        cells, score = self._cells(state, number)
        comparison = Comparison(_weights(row, cells), "dot")
        segments = self._table_segments(state, number).segments
        return [AttributionTarget(row, segments, OUTPUT, (), score, comparison)]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        number = _question(state)
        (cells, score), segments = self._cells(state, number), self._table_segments(state, number)
        return {
            "texts": segments.texts,
            "coordinates": segments.coordinates,
            "prediction": self._prediction(state, number),
            "target": {
                "answer": ", ".join(state.input.table.cell(place) for place in cells),
                "coordinates": [list(place) for place in cells],
                "score": score,
            },
        }

    def _table_segments(self, state: RequestState, number: int) -> TableSegments:
        question, granularity = state.input.questions[number], state.settings.granularity
        tokenizer = self.task.tokenizer
        return segment_table(
            state.rows[number], question, state.input.table, tokenizer, granularity
        )

    def _prediction(self, state: RequestState, number: int) -> dict[str, Any]:
        return self.task.answer(state.input.table, state.rows[number], state.outputs[number])

    def _cells(self, state: RequestState, number: int) -> tuple[list[Cell], float]:
        """Return the cells that are explained, and the mean of their probabilities."""
        probabilities = cell_probabilities(
            state.rows[number].features, state.outputs[number][OUTPUT]
        )
        if not probabilities:
            raise Unprocessable("The cells of the table have no words, so none can be explained.")
        cells = _named_cells(state)
        if cells is None:
            answer = self._prediction(state, number)["coordinates"]
            most = max(probabilities, key=lambda place: probabilities[place])
            cells = [(row, column) for row, column in answer] or [most]
        unread = next((cell for cell in cells if cell not in probabilities), None)
        if unread is not None:
            raise BadRequest(
                f"target's cell {list(unread)} is not read by the model: it is empty, or its row"
                " does not fit."
            )
        return cells, sum(probabilities[cell] for cell in cells) / len(cells)


def _question(state: RequestState) -> int:
    """Return the number of the question that is explained."""
    target = state.settings.target
    if not isinstance(target, dict) or "query" not in target:
        return 0
    return as_integer(target["query"], "target's query", len(state.rows))


def _named_cells(state: RequestState) -> list[Cell] | None:
    """Return the cells of a target; None where it names none."""
    target, table = state.settings.target, state.input.table
    if isinstance(target, dict):
        unknown = min(map(str, target.keys() - {"query", "coordinates"}), default=None)
        if unknown is not None:
            raise BadRequest(f"target has the unknown key {quote(unknown)}; send query and {FORM}.")
        target = target.get("coordinates")
    if target is None:
        return None
    if not isinstance(target, (list, tuple)) or not target:
        raise BadRequest(f"target must be a list of cells, {FORM}, and is {quote(target)}.")
    cells = []
    for cell in target:
        if not isinstance(cell, (list, tuple)) or len(cell) != 2:
            raise BadRequest(f"target has the cell {quote(cell)}; send its row and column, {FORM}.")
        row = as_integer(cell[0], "target's row", len(table.columns[0]))
        cells.append((row, as_integer(cell[1], "target's column", len(table.columns))))
    return list(dict.fromkeys(cells))


def _weights(row: Row, cells: Sequence[Cell]) -> torch.Tensor:
    """Return the weight of each token in the mean over cells of the mean over their tokens."""
    places = [place_of(types) for types in row.features["token_type_ids"]]
    shares = [1 / (len(cells) * places.count(place)) if place in cells else 0 for place in places]
    return torch.tensor(shares, dtype=torch.float32)


def _to_probabilities(forward: Forward) -> Forward:
    """Return a forward whose output for each token is a probability."""

    def probabilities(batch: Tensors) -> Mapping[str, torch.Tensor]:
        return {OUTPUT: forward(batch)[OUTPUT].float().sigmoid()}

    return probabilities


def segment_table(
    row: Row,
    question: str,
    table: Table,
    tokenizer: PreTrainedTokenizerBase,
    granularity: Granularity,
) -> TableSegments:
    """Return the segments of a question with its table.

    Args:
        row: the row, of a tokenizer without character offsets.
        tokenizer: a tokenizer of texts with the same vocabulary.
    """
    places = [_coordinates(row, token) for token in range(len(row))]
    # [CLS] is the first token, and [SEP] is between question and table.
    ends = (0, places.count(None) - 1)
    inner = [token for token in range(len(row)) if token not in ends]
    parts = [list(tokens) for _, tokens in groupby(inner, key=lambda token: places[token])]
    texts = [_text(places[tokens[0]], question, table) for tokens in parts]
    encodings = tokenize(tokenizer, [(text, None) for text in texts], add_special_tokens=False)
    segments = [Segment(_token(row, end, tokenizer), 0, 0, (end,), None) for end in ends]
    for sequence, (text, tokens) in enumerate(zip(texts, parts, strict=True)):
        found = _segments(row, text, tokens, encodings.encodings[sequence], granularity)
        segments += [replace(segment, sequence=sequence) for segment in found]
    segments.sort(key=lambda segment: segment.tokens)
    return TableSegments(segments, texts, [places[segment.tokens[0]] for segment in segments])


def _coordinates(row: Row, token: int) -> Coordinates:
    in_table, column, line = row.features["token_type_ids"][token][:PREVIOUS]
    return (line - 1 if line else None, column - 1) if in_table else None


def _text(place: Coordinates, question: str, table: Table) -> str:
    if place is None:
        return question
    line, column = place
    return table.names[column] if line is None else table.columns[column][line]


def _token(row: Row, number: int, tokenizer: PreTrainedTokenizerBase) -> str:
    return str(tokenizer.convert_ids_to_tokens(row.features["input_ids"][number]))


def _segments(
    row: Row, text: str, tokens: Sequence[int], encoding: Encoding, granularity: Granularity
) -> list[Segment]:
    """Return the segments of one text; one that is tokenized otherwise in tables is one segment."""
    encoding.truncate(len(tokens))
    if encoding.ids != [row.features["input_ids"][token] for token in tokens]:
        return [Segment(text, 0, len(text), tuple(tokens), 0)]
    window = Window({"input_ids": encoding.ids}, encoding)
    return [
        replace(segment, tokens=tuple(tokens[number] for number in segment.tokens))
        for segment in segment_tokens(window, [text], granularity)
    ]
