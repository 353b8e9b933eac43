"""Table question answering: a table and a question to the cells that answer it.

    {"inputs": {"table": {"Name": ["Ada", "Tom"], "Age": ["36", "41"]}, "query": "How old is Tom?"}}
    -> {"answer": "SUM > 41", "coordinates": [[1, 1]], "cells": ["41"], "aggregator": "SUM"}

Answers are those of transformers' pipeline with TAPAS models. Each question is a row of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NotRequired

import numpy as np
from typing_extensions import TypedDict

from handlers.batching.padding import Padding
from handlers.batching.rows import Outputs, Row, RowOutcome
from handlers.batching.tokenization import features
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.config.quoting import quote
from handlers.errors import BadRequest, RequestError, attempt
from handlers.model import Model
from handlers.process.deadline import NO_DEADLINE, Deadline
from handlers.tasks._tables import (
    TOKEN_TYPES,
    Table,
    cell_probabilities,
    check_work,
    encode_table,
    read_table,
    table_tokenizer,
    with_previous_answer,
)
from handlers.tasks._text import RowT, TextTask
from handlers.telemetry.meter import Meter
from handlers.types.parameters import ANY, Parameters, PipelineNames
from handlers.types.request import Request
from handlers.types.text_checks import check_list, check_text, json_type

FORM = '{"table": {column: [cells]}, "query": …}'
QUESTIONS = ("query", "question")
SELECTED = 0.5


class TableParameters(Parameters):
    """Parameters of the table-question-answering pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY}
    )

    sequential: bool = False
    """Answers the questions of a list one after the other. Each is read with the answer to the one
    before, as checkpoints for conversations need it."""
    truncation: bool | Literal["drop_rows_to_fit", "do_not_truncate"] | None = None
    """Leaves out the last rows of a table that is too long, and ends of long cells. `false` refuses
    it. Without it, `truncation` of the YAML."""


class TableInput(TypedDict):
    """A table, by columns or by rows, and a question or several; also called `question`."""

    table: dict[str, list[str | float]] | list[dict[str, str | float]] | str
    query: NotRequired[str | list[str]]
    question: NotRequired[str | list[str]]


class TableAnswer(TypedDict):
    """The cells that answer a question; coordinates are their row and column numbers."""

    answer: str
    coordinates: list[list[int]]
    cells: list[str]
    aggregator: NotRequired[str]


@dataclass(frozen=True)
class TableQuery:
    """A table and the questions about it."""

    table: Table
    questions: Sequence[str]
    parameters: TableParameters


@dataclass(frozen=True)
class QuestionRow(Row):
    """The row of one question.

    Attributes:
        step: the number of rows that run before it, because it is read with their answers.
    """

    step: int = 0


class Task(TextTask[TableQuery, QuestionRow]):
    """Questions about tables, for TAPAS models."""

    needs_offsets = True
    auto_class = "AutoModelForTableQuestionAnswering"
    outputs: tuple[str, ...] = ("logits", "logits_aggregation")
    per_token = ("logits",)
    parameters = TableParameters
    inputs = TableInput
    results = TableAnswer | list[TableAnswer]
    sample: ClassVar[Mapping[str, Any]] = {
        "inputs": {
            "table": {"Name": ["Ada", "Tom"], "City": ["Paris", "London"]},
            "query": "Where does Ada live?",
        }
    }
    input_columns = tuple(("table", name) for name in QUESTIONS)
    packs = False
    exports = False

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._table_tokenizer = table_tokenizer(checkpoint.directory, settings)
        config = checkpoint.config
        if config.num_aggregation_labels == 0:
            self.outputs = ("logits",)
        self._aggregators = config.num_aggregation_labels and config.aggregation_labels

    @classmethod
    def example_inputs(cls, text: str) -> TableInput:
        words = text.split()[2:]  # two fewer, for the [SEP] and the name of the column
        middle = len(words) // 2
        return {
            "table": {"Name": [" ".join(words[middle:]) or "Ada"]},
            "query": " ".join(words[:middle]) or "Who?",
        }

    def parse(self, request: Request) -> TableQuery:
        parameters: TableParameters = self.read_parameters(request.parameters)
        inputs = request.inputs
        if not isinstance(inputs, dict):
            raise BadRequest(f"inputs must be {FORM}, and is {json_type(inputs)}.")
        name = next((name for name in QUESTIONS if inputs.keys() == {"table", name}), None)
        if name is None:
            raise BadRequest(f"inputs has the keys {quote(sorted(map(str, inputs)))}; send {FORM}.")
        questions = self._questions(inputs[name], name)
        table = read_table(inputs["table"], self.max_characters)
        check_work(table, questions)
        return TableQuery(table, questions, parameters)

    def encode(self, queries: Sequence[TableQuery]) -> list[list[QuestionRow] | RequestError]:
        return [attempt(self._rows, query) for query in queries]

    def run(
        self,
        model: Model,
        rows: Sequence[QuestionRow],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        outcomes: dict[int, RowOutcome] = {}
        # The rows of a warm-up are of no question.
        steps = [row.step if isinstance(row, QuestionRow) else 0 for row in rows]
        for step in range(max(steps, default=0) + 1):
            ready: dict[int, QuestionRow] = {}
            for number in (number for number, own in enumerate(steps) if own == step):
                before = outcomes[number - 1] if step else {}
                if isinstance(before, RequestError):
                    outcomes[number] = before
                else:
                    ready[number] = _read_after(rows, number, before) if step else rows[number]
            found = super().run(model, list(ready.values()), meter, deadline)
            outcomes.update(zip(ready, found, strict=True))
        return [outcomes[number] for number in range(len(rows))]

    def decode(
        self, query: TableQuery, rows: Sequence[QuestionRow], outputs: Sequence[Outputs]
    ) -> Any:
        answers = [self.answer(query.table, *each) for each in zip(rows, outputs, strict=True)]
        return answers if len(answers) > 1 else answers[0]

    def answer(self, table: Table, row: Row, outputs: Outputs) -> dict[str, Any]:
        """Return the answer to one question."""
        probabilities = cell_probabilities(row.features, outputs["logits"])
        places = sorted(place for place, value in probabilities.items() if value > SELECTED)
        cells = [table.cell(place) for place in places]
        answer: dict[str, Any] = {
            "answer": ", ".join(cells),
            "coordinates": [list(place) for place in places],
            "cells": cells,
        }
        if not self._aggregators:
            return answer
        number = int(np.argmax(outputs["logits_aggregation"]))
        aggregator = self._aggregators[number]
        if number != self.checkpoint.config.no_aggregation_label_index:
            answer["answer"] = f"{aggregator} > {answer['answer']}"
        return {**answer, "aggregator": aggregator} if aggregator else answer

    def row_as_read(self, rows: Sequence[Row], outputs: Sequence[Outputs], number: int) -> Row:
        """Return the row of a question as the model reads it, with the answer to that before it."""
        row = rows[number]
        asked_in_turn = isinstance(row, QuestionRow) and row.step
        return _read_after(rows, number, outputs[number - 1]) if asked_in_turn else row

    @property
    def padding(self) -> Padding:
        return replace(super().padding, sizes={"token_type_ids": TOKEN_TYPES})

    def _questions(self, questions: Any, name: str) -> list[str]:
        if not isinstance(questions, list):
            return [check_text(questions, name, self.max_characters)]
        listed = check_list(questions, name, self.settings.max_rows)
        return [
            check_text(question, f"{name}[{number}]", self.max_characters)
            for number, question in enumerate(listed)
        ]

    def _rows(self, query: TableQuery) -> list[QuestionRow]:
        encoding = encode_table(
            self._table_tokenizer,
            query.table,
            query.questions,
            max_tokens=self.max_tokens,
            truncates=self._truncates(query),
        )
        names = self.tokenizer.model_input_names
        sequential = query.parameters.sequential
        return [
            QuestionRow(features(encoding, number, names), number if sequential else 0)
            for number in range(len(query.questions))
        ]

    def _truncates(self, query: TableQuery) -> bool:
        wanted = query.parameters.truncation
        return self.truncation if wanted is None else wanted not in (False, "do_not_truncate")


def _read_after(rows: Sequence[RowT], number: int, before: Outputs) -> RowT:
    """Return a row with the answer to the question before it."""
    probabilities = cell_probabilities(rows[number - 1].features, before["logits"])
    selected = {cell for cell, value in probabilities.items() if value > SELECTED}
    return replace(rows[number], features=with_previous_answer(rows[number].features, selected))
