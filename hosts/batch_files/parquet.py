"""Parquet files, which pyarrow reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ERROR_TYPE = pa.struct({"code": pa.int64(), "type": pa.string(), "message": pa.string()})


class UnreadableParquet(Exception):
    """A file is no Parquet, or is damaged."""


def shape(path: Path) -> tuple[int, list[str]]:
    """Return the number of rows of a file, and its columns.

    Raises:
        UnreadableParquet: it cannot be read.
    """
    try:
        with pq.ParquetFile(path) as parquet:
            return parquet.metadata.num_rows, parquet.schema_arrow.names
    except pa.ArrowException as error:
        raise UnreadableParquet(_first_line(error)) from None


def read_rows(path: str, start: int, stop: int) -> pa.Table:
    """Return rows of a file, from the groups that they are in.

    Raises:
        UnreadableParquet: they cannot be read.
        OSError: the file cannot be read now.
    """
    try:
        return _read_rows(path, start, stop)
    except (OSError, pa.ArrowException) as error:
        if getattr(error, "errno", None):
            raise
        raise UnreadableParquet(_first_line(error)) from None


def count_values(path: Path, column: str) -> int:
    """Return how many values of a column are not null."""
    found = pq.read_table(path, columns=[column]).column(column)
    return len(found) - int(found.null_count)


def encode(
    rows: pa.Table | Mapping[str, Sequence[str | None]],
    texts: Mapping[str, Sequence[str | None]],
    errors: Mapping[str, Sequence[Any]],
) -> bytes:
    """Return rows as the content of a file, with further columns of texts and of errors."""
    added = {name: pa.array(found, pa.string()) for name, found in texts.items()}
    added |= {name: pa.array(found, ERROR_TYPE) for name, found in errors.items()}
    if isinstance(rows, pa.Table):
        table = rows
        for name, values in added.items():
            table = table.append_column(name, values)
    else:
        own = {name: pa.array(found, pa.string()) for name, found in rows.items()}
        table = pa.table({**own, **added})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def _read_rows(path: str, start: int, stop: int) -> pa.Table:
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


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
