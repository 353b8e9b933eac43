"""Files of rows, cut into chunks: the same chunks for the same files, whoever reads them.

Lines of JSON and rows of CSV are found by their place in the file, so that a chunk is read without
what is before it. Rows of Parquet are found by their number.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from hf_serve.handlers.errors import KitError

Kind = Literal["jsonl", "csv", "parquet"]
SUFFIXES: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
MAX_FIELD = 16 << 20
BOM, WHITESPACE = b"\xef\xbb\xbf", b" \t\r\n"
# The columns that rows get.
RESULT, ERROR = "result", "error"
OUTPUT_COLUMNS = {RESULT, ERROR}


class WrongInput(KitError):
    """The input is missing, is empty or lacks a column."""


class PyarrowMissing(KitError):
    """A file is Parquet, and pyarrow is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "Parquet needs pyarrow, which is not installed; run `pip install pyarrow`."
        )


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file that follow each other.

    Attributes:
        number: its number among the chunks of all files, which names the file of its results.
        start: where it begins: a byte or, in Parquet, a row.
        first_row: the number of its first row in the file, from 1, for errors.
        names: the columns of a CSV file.
    """

    number: int
    path: str
    kind: Kind
    start: int
    stop: int
    first_row: int
    rows: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputFile:
    """A file of rows.

    Attributes:
        columns: the names of its columns; in JSON lines, of its rows up to the first one that
            has the column of the inputs.
    """

    path: Path
    kind: Kind
    sha256: str
    chunks: list[Chunk]
    columns: list[str]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(chunk.rows for chunk in self.chunks)


@dataclass
class Block:
    """The rows of a chunk.

    Attributes:
        inputs: the value of each row in the column of the inputs.
        errors: what is wrong with rows that have none, by their place in the chunk.
        rows: the rows themselves: objects of JSON, or a table of pyarrow where they come from
            Parquet.
    """

    inputs: list[Any] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    rows: list[bytes] | Any = field(default_factory=list)


def find_files(path: Path, output: Path) -> list[Path]:
    """Return the file, or the files of a folder and of those in it, sorted by name.

    Files and folders whose names begin with a dot or with `_` are left out, and so are results.

    Raises:
        WrongInput: there are none.
    """
    if not path.exists():
        raise WrongInput(f"There is no {path}.")
    files = [path] if path.is_file() else sorted(_files_of(path, output))
    if not files or kind_of(files[0]) is None:
        known = ", ".join(SUFFIXES)
        raise WrongInput(f"{path} is no file of rows and has none; the formats are {known}.")
    return files


def kind_of(path: Path) -> Kind | None:
    """Return the format of a file of rows; None of another file."""
    return SUFFIXES.get(path.suffix.lower())


def plan(files: Sequence[Path], chunk_rows: int, column: str) -> list[InputFile]:
    """Return files with their chunks of at most `chunk_rows` rows.

    Raises:
        WrongInput: a file cannot be read or lacks the column, or no file has a row.
    """
    planned, number = list[InputFile](), 0
    for path in files:
        file = _plan(path, chunk_rows, number, column)
        _check_columns(file, column)
        planned.append(file)
        number += len(file.chunks)
    if not number:
        raise WrongInput(f"{_names(files)} has no rows.")
    return planned


def read(chunk: Chunk, column: str) -> Block:
    """Return the rows of a chunk.

    Raises:
        OSError: the file cannot be read now.
    """
    return READERS[chunk.kind](chunk, column)


def _files_of(folder: Path, output: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith((".", "_")) for part in parts)
        is_result = path.resolve().is_relative_to(output.resolve())
        if kind_of(path) and path.is_file() and not is_hidden and not is_result:
            yield path


def _plan(path: Path, chunk_rows: int, number: int, column: str) -> InputFile:
    kind = SUFFIXES[path.suffix.lower()]
    try:
        return PLANNERS[kind](path, chunk_rows, number, column)
    except OSError as error:
        raise WrongInput(f"{path} cannot be read: {error.strerror or error}") from None


def _check_columns(file: InputFile, column: str) -> None:
    columns = Counter(file.columns)
    if columns and column not in columns:
        raise WrongInput(
            f"{file.path} has no column {column}; its columns are {', '.join(file.columns[:20])}."
            " --column names another one."
        )
    if taken := OUTPUT_COLUMNS & columns.keys():
        raise WrongInput(f"{file.path} {_taken(min(taken))}")
    if twice := [name for name, count in columns.items() if count > 1]:
        raise WrongInput(f"{file.path} has the column {twice[0]} twice; rename one of them.")


def _taken(column: str) -> str:
    return f"has a column {column}, which results are written to; rename it."


def _names(files: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in files[:3])


def _plan_lines(path: Path, chunk_rows: int, number: int, column: str) -> InputFile:
    digest, starts, columns = hashlib.sha256(), list[int](), dict[str, None]()
    place = 0
    with path.open("rb") as file:
        for line in file:
            digest.update(line)
            if line.strip():
                if not starts and line.lstrip(BOM + WHITESPACE).startswith(b"["):
                    raise WrongInput(f"{path} is a JSON array; write an object on each line.")
                starts.append(place)
                if column not in columns:
                    columns.update(dict.fromkeys(_row_of(line)[0]))
            place += len(line)
    chunks = _cut(path, "jsonl", [*starts, place], chunk_rows, number)
    return InputFile(path, "jsonl", digest.hexdigest(), chunks, list(columns))


def _plan_csv(path: Path, chunk_rows: int, number: int, _column: str) -> InputFile:
    lines = _CountedLines(path)
    csv.field_size_limit(MAX_FIELD)
    reader, starts = csv.reader(lines), list[int]()
    try:
        names = tuple(next(reader, []))
        end = lines.place
        for row in reader:
            if row:
                starts.append(end)
            end = lines.place
    except csv.Error as error:
        raise WrongInput(
            f"{path} cannot be read after row {len(starts)}: {error}; a quote may not be closed."
        ) from None
    if starts and _ends_in_quotes(path, starts[-1]):
        raise WrongInput(f"{path} has a quote in row {len(starts)} that is not closed.")
    if any(map(_has_surrogate, names)):
        raise WrongInput(f"{path} is not UTF-8; save it in this encoding.")
    chunks = _cut(path, "csv", [*starts, lines.place], chunk_rows, number, names)
    return InputFile(path, "csv", lines.digest.hexdigest(), chunks, list(names))


def _ends_in_quotes(path: Path, start: int) -> bool:
    """Return whether the last row of a CSV file has the rows after it, as a quote is not closed."""
    lines = list(_CountedLines(path, start))
    try:
        list(csv.reader(lines, strict=True))
    except csv.Error:
        return len(lines) > 1
    return False


def _plan_parquet(path: Path, chunk_rows: int, number: int, _column: str) -> InputFile:
    parquet = parquet_module()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        rows, columns = parquet.shape(path)
    except parquet.UnreadableParquet as error:
        raise WrongInput(f"{path} cannot be read: {error}") from None
    chunks = _cut(path, "parquet", range(rows + 1), chunk_rows, number)
    return InputFile(path, "parquet", digest, chunks, columns)


def parquet_module() -> ModuleType:
    """Return the module that reads and writes Parquet.

    Raises:
        PyarrowMissing: pyarrow is not installed.
    """
    try:
        from hf_serve.hosts.batch_files import parquet  # noqa: PLC0415
    except ModuleNotFoundError:
        raise PyarrowMissing from None
    return parquet


def _cut(
    path: Path,
    kind: Kind,
    places: Sequence[int],
    chunk_rows: int,
    number: int,
    names: tuple[str, ...] = (),
) -> list[Chunk]:
    """Return the chunks of a file, from the places of its rows and of its end."""
    rows, chunks = len(places) - 1, list[Chunk]()
    for first in range(0, rows, chunk_rows):
        stop = min(first + chunk_rows, rows)
        chunks.append(
            Chunk(
                number + len(chunks),
                str(path.absolute()),
                kind,
                places[first],
                places[stop],
                first + 1,
                stop - first,
                names,
            )
        )
    return chunks


def _read_lines(chunk: Chunk, column: str) -> Block:
    block, rows = Block(), list[bytes]()
    with Path(chunk.path).open("rb") as file:
        file.seek(chunk.start)
        content = file.read(chunk.stop - chunk.start)
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        row, error = _row_of(line)
        if taken := OUTPUT_COLUMNS & row.keys():
            error, row = _taken(min(taken)), _without(row, taken)
            line = json.dumps(row).encode()
        _add(block, chunk, row, column, error)
        # The text itself: JSON has numbers that Python changes.
        rows.append(line.removeprefix(BOM).strip() if row else b"{}")
    block.rows = rows
    return block


def _read_csv(chunk: Chunk, column: str) -> Block:
    block, rows = Block(), list[bytes]()
    csv.field_size_limit(MAX_FIELD)
    for cells in csv.reader(_CountedLines(Path(chunk.path), chunk.start, chunk.stop)):
        if cells:
            row, error = _row_of_cells(cells, chunk.names)
            _add(block, chunk, row, column, error)
            rows.append(json.dumps(row, ensure_ascii=False).encode())
    block.rows = rows
    return block


def _read_parquet(chunk: Chunk, column: str) -> Block:
    parquet = parquet_module()
    try:
        table = parquet.read_rows(chunk.path, chunk.start, chunk.stop)
    except parquet.UnreadableParquet as error:
        return _damaged(chunk, str(error))
    return Block(table.column(column).to_pylist(), rows=table)


def _damaged(chunk: Chunk, reason: str) -> Block:
    """Return the rows of a chunk whose content cannot be read."""
    block = Block(rows=[b"{}"] * chunk.rows)
    for _ in range(chunk.rows):
        _add(block, chunk, {}, "", f"cannot be read: {reason}")
    return block


def _add(block: Block, chunk: Chunk, row: dict[str, Any], column: str, error: str | None) -> None:
    place = len(block.inputs)
    if error:
        block.errors[place] = f"Row {chunk.first_row + place} of {Path(chunk.path).name} {error}"
    elif column not in row:
        block.errors[place] = f"The row has no column {column}."
    block.inputs.append(row.get(column))


def _row_of(line: bytes) -> tuple[dict[str, Any], str | None]:
    """Return the columns of a line of JSON, or what is wrong with it."""
    try:
        row = json.loads(line.removeprefix(BOM).decode())
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at")
        return {}, f"is not JSON: {reason} at character {error.pos + 1}."
    except (UnicodeDecodeError, RecursionError):
        return {}, "is not JSON in UTF-8, or nested too deep."
    except ValueError:
        return {}, "has a number with too many digits."
    if not isinstance(row, dict):
        return {}, "is no JSON object with a value for each column."
    return row, None


def _without(row: dict[str, Any], names: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _row_of_cells(cells: list[str], names: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """Return the columns of a row of CSV, and what is wrong with it."""
    row: dict[str, Any] = dict(zip(names, map(_readable, cells), strict=False))
    if any(_has_surrogate(cell) for cell in cells):
        return row, "is not UTF-8."
    if len(cells) != len(names):
        return row, f"has {len(cells)} cells, and the header has {len(names)}."
    return row, None


def _readable(text: str) -> str:
    """Return a text with a question mark in place of each byte that is not UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


class _CountedLines(Iterator[str]):
    """The lines of a CSV file between two places, and the place of the next one.

    Bytes that are not UTF-8 become surrogates.
    """

    def __init__(self, path: Path, start: int = 0, stop: int | None = None) -> None:
        self._file = path.open("rb")
        self._file.seek(start)
        self.place, self._stop = start, stop
        self.digest = hashlib.sha256()

    def __next__(self) -> str:
        at_end = self._file.closed or (self._stop is not None and self.place >= self._stop)
        line = b"" if at_end else self._file.readline()
        if not line:
            self._file.close()
            raise StopIteration
        self.digest.update(line)
        is_first, self.place = self.place == 0, self.place + len(line)
        text = line.removeprefix(BOM) if is_first else line
        return text.decode("utf-8", "surrogateescape")


PLANNERS = {"jsonl": _plan_lines, "csv": _plan_csv, "parquet": _plan_parquet}
READERS = {"jsonl": _read_lines, "csv": _read_csv, "parquet": _read_parquet}
