"""Files of rows, cut into chunks: the same chunks for the same files, whoever reads them.

Lines of JSON and rows of CSV are found by their place in the file, so that a chunk is read without
what is before it. Rows of Parquet are found by their number.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from handlers.errors import KitError

Kind = Literal["jsonl", "csv", "parquet"]
SUFFIXES: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
MAX_FIELD = 16 << 20
BOM = b"\xef\xbb\xbf"


class WrongInput(KitError):
    """The input is missing, is empty or lacks a column."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file that follow each other.

    Attributes:
        number: its number among the chunks of all files, which names the file of its results.
        path: the file.
        kind: the file's format.
        start: where it begins: a byte or, in Parquet, a row.
        stop: where it ends.
        first_row: the number of its first row in the file, from 1, for errors.
        rows: how many rows it has.
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
        path: the file.
        sha256: the digest of its content.
        chunks: its chunks, in order.
        columns: the names of its columns; of JSON lines, those of its first row.
    """

    path: Path
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
        rows: the columns of each row; empty for a row that cannot be read.
        errors: what is wrong with rows that cannot be read, by their place in the chunk.
        table: the same rows, where they come from Parquet.
    """

    rows: list[dict[str, Any]]
    errors: dict[int, str] = field(default_factory=dict)
    table: pa.Table | None = None


def find_files(path: Path) -> list[Path]:
    """Return the file, or the files of a folder and of those in it, sorted by name.

    Raises:
        WrongInput: there are none, or those of a folder have several formats.
    """
    if not path.exists():
        raise WrongInput(f"There is no {path}.")
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if _is_rows(each))
    known = ", ".join(SUFFIXES)
    if not files or any(each.suffix not in SUFFIXES for each in files):
        raise WrongInput(f"{path} is no file of rows and has none; the formats are {known}.")
    if len({SUFFIXES[each.suffix] for each in files}) > 1:
        raise WrongInput(f"{path} has files of several formats; score one format at a time.")
    return files


def plan(files: Sequence[Path], chunk_rows: int) -> list[InputFile]:
    """Return files with their chunks, of so many rows or fewer.

    Raises:
        WrongInput: a file cannot be read, or no file has a row.
    """
    planned, number = list[InputFile](), 0
    for path in files:
        try:
            planned.append(PLANNERS[SUFFIXES[path.suffix]](path, chunk_rows, number))
        except (OSError, pa.ArrowInvalid) as error:
            reason = str(error).strip().splitlines()[0]
            raise WrongInput(f"{path} cannot be read: {reason}") from None
        number += len(planned[-1].chunks)
    if not number:
        raise WrongInput(f"{_names(files)} has no rows.")
    return planned


def read(chunk: Chunk) -> Block:
    """Return the rows of a chunk."""
    return READERS[chunk.kind](chunk)


def _is_rows(path: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.parts[-1:])
    return path.is_file() and path.suffix in SUFFIXES and not hidden


def _names(files: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in files[:3])


def _plan_lines(path: Path, chunk_rows: int, number: int) -> InputFile:
    digest, starts, columns = hashlib.sha256(), list[int](), list[str]()
    place = 0
    with path.open("rb") as file:
        for line in file:
            digest.update(line)
            if line.strip():
                starts.append(place)
                columns = columns or list(_row_of(line)[0])
            place += len(line)
    chunks = _cut(path, "jsonl", [*starts, place], chunk_rows, number)
    return InputFile(path, digest.hexdigest(), chunks, columns)


def _plan_csv(path: Path, chunk_rows: int, number: int) -> InputFile:
    lines = _CountedLines(path)
    csv.field_size_limit(MAX_FIELD)
    reader, starts = csv.reader(lines), list[int]()
    try:
        names = tuple(next(reader, []))
        ends = [lines.place]
        for row in reader:
            if row:
                starts.append(ends[-1])
            ends.append(lines.place)
            ends = ends[-1:]
    except csv.Error as error:
        raise WrongInput(
            f"{path} cannot be read after row {len(starts)}: {error}; a quote may not be closed."
        ) from None
    places = [*starts, lines.place]
    chunks = _cut(path, "csv", places, chunk_rows, number, names)
    return InputFile(path, lines.digest.hexdigest(), chunks, list(names))


def _plan_parquet(path: Path, chunk_rows: int, number: int) -> InputFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with pq.ParquetFile(path) as parquet:
        rows, columns = parquet.metadata.num_rows, parquet.schema_arrow.names
    chunks = _cut(path, "parquet", range(rows + 1), chunk_rows, number)
    return InputFile(path, digest, chunks, columns)


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
                str(path),
                kind,
                places[first],
                places[stop],
                first + 1,
                stop - first,
                names,
            )
        )
    return chunks


def _read_lines(chunk: Chunk) -> Block:
    block = Block([])
    with Path(chunk.path).open("rb") as file:
        file.seek(chunk.start)
        content = file.read(chunk.stop - chunk.start)
    for line in content.split(b"\n"):
        if line.strip():
            _add(block, chunk, *_row_of(line))
    return block


def _read_csv(chunk: Chunk) -> Block:
    block = Block([])
    csv.field_size_limit(MAX_FIELD)
    for cells in csv.reader(_CountedLines(Path(chunk.path), chunk.start, chunk.stop)):
        if cells:
            _add(block, chunk, *_row_of_cells(cells, chunk.names))
    return block


def _read_parquet(chunk: Chunk) -> Block:
    table = _row_groups(chunk.path, chunk.start, chunk.stop)
    return Block(table.to_pylist(), table=table)


def _row_groups(path: str, start: int, stop: int) -> pa.Table:
    """Return rows of a Parquet file, from the groups that they are in."""
    parts, first = list[pa.Table](), 0
    with pq.ParquetFile(path) as parquet:
        sizes = [
            parquet.metadata.row_group(each).num_rows for each in range(parquet.num_row_groups)
        ]
    for group, size in enumerate(sizes):
        if first < stop and first + size > start:
            begin = max(start - first, 0)
            parts.append(_row_group(path, group).slice(begin, min(stop - first, size) - begin))
        first += size
    return pa.concat_tables(parts)


@lru_cache(maxsize=1)
def _row_group(path: str, group: int) -> pa.Table:
    """Return a group of rows; the next chunk is usually in the same one."""
    with pq.ParquetFile(path) as parquet:
        return parquet.read_row_group(group)


def _add(block: Block, chunk: Chunk, row: dict[str, Any], error: str | None) -> None:
    if error:
        number = chunk.first_row + len(block.rows)
        block.errors[len(block.rows)] = f"Row {number} of {Path(chunk.path).name} {error}"
    block.rows.append(row)


def _row_of(line: bytes) -> tuple[dict[str, Any], str | None]:
    """Return the columns of a line of JSON, or what is wrong with it."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        return {}, f"is not JSON: {error.msg} at character {error.pos + 1}."
    except (UnicodeDecodeError, RecursionError):
        return {}, "is not JSON in UTF-8, or nested too deep."
    if not isinstance(row, dict):
        return {}, "is no JSON object with a value for each column."
    return row, None


def _row_of_cells(cells: list[str], names: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """Return the columns of a row of CSV, or what is wrong with it."""
    row: dict[str, Any] = dict(zip(names, cells, strict=False))
    if any(_has_surrogate(cell) for cell in cells):
        return {}, "is not UTF-8."
    if len(cells) != len(names):
        return row, f"has {len(cells)} cells, and the header has {len(names)}."
    return row, None


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
        at_end = self._stop is not None and self.place >= self._stop
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
