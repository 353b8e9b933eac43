"""Tables of a request, and their rows of tokens for TAPAS."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import TapasTokenizer

from handlers.config.handler_section import HandlerSection
from handlers.errors import BadRequest, RequestTooLarge, WrongCheckpoint, summarize
from handlers.process.packages import require_package
from handlers.types.text_checks import json_type, parse_json

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


def read_table(value: Any, max_characters: int) -> Table:
    """Return a table of a request: columns by name, a list of rows, or the JSON text of either.

    Args:
        value: the value in the request.
        max_characters: the maximum number of characters of a table.

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
        tokenizer: the tokenizer of tables.
        table: the table.
        questions: the questions.
        max_tokens: the maximum number of tokens of a question and its table; None for that of the
            tokenizer.
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
