"""Table question answering: a table and a question to the cells that answer it.

    {"inputs": {"table": {"Name": ["Ada", "Tom"], "Age": ["36", "41"]}, "query": "How old is Tom?"}}
    -> {"answer": "SUM > 41", "coordinates": [[1, 1]], "cells": ["41"], "aggregator": "SUM"}

Answers are computed as by transformers' pipeline with TAPAS models. Each question is a row
of the batch.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NotRequired

import numpy as np
import numpy.typing as npt
from transformers import TapasTokenizer
from typing_extensions import TypedDict

from ..batching.padding import Padding
from ..batching.rows import Outputs, Row, RowOutcome
from ..batching.tokenization import features
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..errors import BadRequest, RequestError, RequestTooLarge, WrongCheckpoint, attempt, summarize
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline
from ..process.packages import require_package
from ..telemetry.metrics import Meter
from ..types.model_info import Exports, ModelOutputs, Rows, TaskDescription, Wire
from ..types.parameters import (
    ANY,
    Parameters,
    PipelineNames,
    check_list,
    check_object,
    check_text,
    json_type,
    parse_json,
)
from ..types.request import Request
from .bases.text import RowT, TextTask

FORM = '{"table": {column: [cells]}, "query": …}'
QUESTIONS = ("query", "question")
SELECTED = 0.5
INSTALL = "pip install 'pandas<3'"
# The tokenizer of tables is written in Python. It reads the whole table for each question, and
# compares each number of a question with each cell. A table at these limits takes 2 to 4 seconds.
MAX_CELLS = 2_000
MAX_CHARACTERS = 20_000
MAX_COMPARISONS = 100_000
# A token's numbers: is it of the table, its column, its row, is it of the previous answer, and how
# its number compares with others.
TOKEN_TYPES = 7
IN_TABLE, COLUMN, ROW, PREVIOUS = range(4)
WORD = re.compile(r"\w+")
Place = tuple[int, int]


@dataclass(frozen=True)
class Table:
    """The names of the columns, and the cells of each."""

    names: Sequence[str]
    columns: Sequence[Sequence[str]]

    def cell(self, place: Place) -> str:
        """Return the cell in a row and a column."""
        row, column = place
        return self.columns[column][row]

    @property
    def cells(self) -> int:
        """The number of cells, without the names."""
        return sum(map(len, self.columns))

    @property
    def characters(self) -> int:
        """The number of characters of names and cells."""
        return sum(len(text) for texts in (self.names, *self.columns) for text in texts)


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
class TableQuestions:
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


class Task(TextTask[TableQuestions, QuestionRow]):
    """Questions about tables, for TAPAS models."""

    needs_offsets = True
    auto_class = "AutoModelForTableQuestionAnswering"
    description = TaskDescription(
        Wire(
            inputs=TableInput,
            results=TableAnswer | list[TableAnswer],
            example={
                "inputs": {
                    "table": {"Name": ["Ada", "Tom"], "City": ["Paris", "London"]},
                    "query": "Where does Ada live?",
                }
            },
            input_columns=tuple(("table", name) for name in QUESTIONS),
        ),
        outputs=ModelOutputs(("logits", "logits_aggregation"), per_token=("logits",)),
        rows=Rows(supports_packing=False),
        exports=Exports(supported=False),
    )
    parameters = TableParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._table_tokenizer = table_tokenizer(checkpoint.directory, settings)
        config = checkpoint.config
        if config.num_aggregation_labels == 0:
            self.description = replace(
                self.description, outputs=ModelOutputs(("logits",), per_token=("logits",))
            )
        self._aggregators = config.num_aggregation_labels and config.aggregation_labels

    @classmethod
    def example_inputs(cls, text: str) -> TableInput:
        words = text.split()[2:]  # two fewer, for the [SEP] and the name of the column
        middle = len(words) // 2
        return {
            "table": {"Name": [" ".join(words[middle:]) or "Ada"]},
            "query": " ".join(words[:middle]) or "Who?",
        }

    def parse(self, request: Request) -> TableQuestions:
        parameters: TableParameters = self.read_parameters(request.parameters)
        inputs = check_object(request.inputs, FORM, *(("table", name) for name in QUESTIONS))
        name = next(name for name in QUESTIONS if name in inputs)
        questions = self._questions(inputs[name], name)
        table = read_table(inputs["table"], self.max_characters)
        check_work(table, questions)
        return TableQuestions(table, questions, parameters)

    def encode(self, inputs: Sequence[TableQuestions]) -> list[list[QuestionRow] | RequestError]:
        return [attempt(self._rows, item) for item in inputs]

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
        self, item: TableQuestions, rows: Sequence[QuestionRow], outputs: Sequence[Outputs]
    ) -> Any:
        answers = [self.answer(item.table, *each) for each in zip(rows, outputs, strict=True)]
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

    def _rows(self, item: TableQuestions) -> list[QuestionRow]:
        encoding = encode_table(
            self._table_tokenizer,
            item.table,
            item.questions,
            max_tokens=self.max_tokens,
            truncates=self._truncates(item),
        )
        names = self.tokenizer.model_input_names
        sequential = item.parameters.sequential
        return [
            QuestionRow(features(encoding, number, names), number if sequential else 0)
            for number in range(len(item.questions))
        ]

    def _truncates(self, item: TableQuestions) -> bool:
        wanted = item.parameters.truncation
        return self.truncation if wanted is None else wanted not in (False, "do_not_truncate")


def _read_after(rows: Sequence[RowT], number: int, before: Outputs) -> RowT:
    """Return a row with the answer to the question before it."""
    probabilities = cell_probabilities(rows[number - 1].features, before["logits"])
    selected = {cell for cell, value in probabilities.items() if value > SELECTED}
    return replace(rows[number], features=with_previous_answer(rows[number].features, selected))


def read_table(value: Any, max_characters: int) -> Table:
    """Return a table of a request: columns by name, a list of rows, or the JSON text of either.

    Raises:
        BadRequest: it is no table, is empty, or its columns differ in length.
        RequestTooLarge: it has too many cells or characters.
    """
    columns = _columns(parse_json(value, "table", max_characters))
    lengths = {len(cells) for cells in columns.values()}
    if not columns or lengths == {0}:
        raise BadRequest("table is empty; send at least one column with one cell.")
    if len(lengths) > 1:
        raise BadRequest(
            f"table has columns of {min(lengths)} to {max(lengths)} cells; send as many in each."
        )
    count = len(columns) * max(lengths)
    if count > MAX_CELLS:
        raise RequestTooLarge(f"table has {count:,} cells, and {MAX_CELLS:,} are allowed.")
    table = Table(
        [_cell(name, "a column's name") for name in columns],
        [
            [_cell(cell, f"table's column {number}, row {row}") for row, cell in enumerate(cells)]
            for number, cells in enumerate(columns.values())
        ],
    )
    if table.characters > max_characters:
        raise RequestTooLarge(
            f"table has {table.characters:,} characters, and this model takes {max_characters:,}"
            "; send less."
        )
    return table


def check_work(table: Table, questions: Sequence[str]) -> None:
    """Check that the questions of one request take the tokenizer a few seconds at most.

    Raises:
        RequestTooLarge: they take more.
    """
    count, words = len(questions), sum(len(WORD.findall(question)) for question in questions)
    characters = sum(map(len, questions))
    for found, what, limit in (
        (table.cells * count, "cells of the table, for each question", MAX_CELLS),
        (
            table.characters * count + characters,
            "characters of the table, for each question, and of the questions",
            MAX_CHARACTERS,
        ),
        (table.cells * words, "pairs of a cell and a question's word", MAX_COMPARISONS),
    ):
        if found > limit:
            raise RequestTooLarge(
                f"inputs has {found:,} {what}, and {limit:,} are allowed"
                "; send fewer rows, or fewer or shorter questions."
            )


def table_tokenizer(directory: Path, settings: HandlerSection) -> Any:
    """Return the tokenizer of a checkpoint's tables.

    Raises:
        WrongConfig: pandas is not installed.
        WrongCheckpoint: the checkpoint has no vocab.txt, or it cannot be read.
    """
    require_package("pandas", "mode: table_question_answering", INSTALL)
    case = {} if settings.do_lower_case is None else {"do_lower_case": settings.do_lower_case}
    try:
        return TapasTokenizer.from_pretrained(directory, local_files_only=True, **case)
    except Exception as error:  # noqa: BLE001 - files have errors of many types
        raise WrongCheckpoint(
            "vocab.txt",
            f"gives no tokenizer of tables ({summarize(error)})",
            "pack the vocab.txt of the TAPAS checkpoint",
        ) from None


def data_frame(table: Table) -> Any:
    """Return a table as the tokenizer takes it."""
    pandas = require_package("pandas", "mode: table_question_answering", INSTALL)
    # The tokenizer reads cells by position, which pandas 3 ends.
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers.models.tapas")
    rows = list(zip(*table.columns, strict=True))
    return pandas.DataFrame(rows, columns=list(table.names), dtype=object)


def encode_table(
    tokenizer: Any,
    table: Table,
    questions: Sequence[str],
    *,
    max_tokens: int | None,
    truncates: bool,
) -> Mapping[str, Any]:
    """Return the tokens of a table with each question, by the name of the model's input.

    Args:
        max_tokens: the maximum number of tokens of a question and its table; None for the
            tokenizer's.
        truncates: whether the last rows, and ends of long cells, are left out to fit.

    Raises:
        RequestTooLarge: a question does not fit with its table, or with the names of the columns.
    """
    limit = max_tokens or tokenizer.model_max_length
    try:
        encoding: Mapping[str, Any] = tokenizer(
            data_frame(table),
            list(questions),
            truncation="drop_rows_to_fit" if truncates else "do_not_truncate",
            max_length=limit,
            padding=False,
            verbose=False,
        )
    except ValueError:  # of a length, a number of rows or one of columns
        part = "the names of the columns" if truncates else "the table"
        raise RequestTooLarge(
            f"a question with {part} has too many tokens, rows or columns, and this model takes"
            f" {limit:,}; send less of them, or set truncation: true."
        ) from None
    return encoding


def cell_probabilities(
    features: Mapping[str, Any], logits: npt.NDArray[np.float32]
) -> dict[Place, float]:
    """Return how likely each cell is selected: the mean of its tokens, by row and column."""
    # exp overflows beyond this number.
    probabilities = 1 / (1 + np.exp(-np.maximum(logits, -88.7)))
    found = defaultdict[Place, list[float]](list)
    for types, probability in zip(
        features["token_type_ids"], probabilities.astype(float).tolist(), strict=True
    ):
        if place := place_of(types):
            found[place].append(probability)
    return {place: float(np.mean(values)) for place, values in found.items()}


def with_previous_answer(features: Mapping[str, Any], selected: set[Place]) -> dict[str, Any]:
    """Return the inputs of a row with the cells that answered the question before."""
    types = [
        [*each[:PREVIOUS], int(place_of(each) in selected), *each[PREVIOUS + 1 :]]
        for each in features["token_type_ids"]
    ]
    return {**features, "token_type_ids": types}


def place_of(types: Sequence[int]) -> Place | None:
    """Return the row and column of a token's cell; None outside of the cells."""
    if types[IN_TABLE] == 1 and types[ROW] > 0 and types[COLUMN] > 0:
        return types[ROW] - 1, types[COLUMN] - 1
    return None


def _columns(value: Any) -> dict[str, Any]:
    """Return the columns of a table by name, each a list."""
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        names = value[0].keys()
        if any(row.keys() != names for row in value):
            raise BadRequest("table has rows with different columns; send the same in each.")
        return {name: [row[name] for row in value] for name in names}
    if not isinstance(value, dict):
        raise BadRequest(
            f"table must be {{column: [cells]}} or a list of rows, and is {json_type(value)}."
        )
    wrong = next((cells for cells in value.values() if not isinstance(cells, list)), None)
    if wrong is not None or None in value.values():
        raise BadRequest(f"each column of table must be a list, and one is {json_type(wrong)}.")
    return value


def _cell(value: Any, name: str) -> str:
    """Return a cell as a text.

    Raises:
        BadRequest: it is neither text nor number, or has half a surrogate pair.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadRequest(f"{name} must be a text or a number, and is {json_type(value)}.")
    try:
        text = str(value)
        text.encode("utf-8")
    except ValueError:
        raise BadRequest(f"{name} is not a whole text; send whole characters.") from None
    return text
