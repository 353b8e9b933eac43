"""The folder of results: one file for each chunk, and a manifest that says of what.

A file appears under its name when it is complete, so what has a file is done.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json, to_json

from handlers.errors import KitError
from hosts.ray_data.chunks import Block

Format = Literal["jsonl", "parquet"]
MANIFEST = "manifest.json"
DRAFT = ".draft-"
RESULT, ERROR = "result", "error"
ERROR_TYPE = pa.struct({"code": pa.int64(), "type": pa.string(), "message": pa.string()})
Outcome = tuple[Any, dict[str, Any] | None]


class WrongOutput(KitError):
    """The folder of results cannot be written, or has results of something else."""


def open_folder(folder: Path, manifest: dict[str, Any]) -> None:
    """Make the folder of results, or go on with one of the same archive, input and settings.

    Raises:
        WrongOutput: it cannot be written, or has other results or other files.
    """
    file = folder / MANIFEST
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for draft in folder.glob(f"{DRAFT}*"):
            draft.unlink()
        before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        if before is None and any(folder.iterdir()):
            raise WrongOutput(f"{folder} has other files; name an empty or a new folder.")
        if before is None:
            _write(file, to_json(manifest, indent=2))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its manifest is not JSON"
        raise WrongOutput(f"{folder} cannot be used for results: {reason}.") from None
    changed = [key for key in manifest if (before or manifest).get(key) != manifest[key]]
    if changed:
        raise WrongOutput(
            f"{folder} has results of another {changed[0].replace('_', ' ')}; name another folder,"
            " or remove this one."
        )


def file_of(folder: Path, number: int, output_format: str) -> Path:
    """Return the file of a chunk's results."""
    return folder / f"part-{number:06}.{output_format}"


def write_results(path: Path, block: Block, outcomes: Sequence[Outcome]) -> None:
    """Write the rows of a chunk with their results and errors; the file appears complete."""
    if path.suffix == ".parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(_table(block, outcomes), sink)
        _write(path, sink.getvalue())
    else:
        _write(path, b"".join(_lines(block, outcomes)))


def count_errors(path: Path) -> int:
    """Return how many rows of a file of results have an error."""
    if path.suffix == ".parquet":
        column = pq.read_table(path, columns=[ERROR]).column(ERROR)
        return len(column) - int(column.null_count)
    with path.open("rb") as file:
        return sum(from_json(line)[ERROR] is not None for line in file)


def _lines(block: Block, outcomes: Sequence[Outcome]) -> list[bytes]:
    pairs = zip(block.rows, outcomes, strict=True)
    return [
        to_json({**row, RESULT: result, ERROR: error}, bytes_mode="base64", inf_nan_mode="null")
        + b"\n"
        for row, (result, error) in pairs
    ]


def _table(block: Block, outcomes: Sequence[Outcome]) -> pa.Table:
    results = [None if error else to_json(result).decode() for result, error in outcomes]
    columns = {
        RESULT: pa.array(results, pa.string()),
        ERROR: pa.array([error for _, error in outcomes], ERROR_TYPE),
    }
    table = _texts(block.rows) if block.table is None else block.table
    for name, values in columns.items():
        table = table.append_column(name, values)
    return table


def _texts(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows as columns of texts: what is no text is JSON, as its type may change by row."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {
        name: pa.array([_text(row.get(name)) for row in rows], pa.string()) for name in names
    }
    return pa.table(columns) if names else pa.table({}).append_column("", pa.nulls(len(rows)))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else to_json(value).decode()


def _write(path: Path, content: Any) -> None:
    """Write a file under another name first, so that nobody sees a part of it."""
    draft = path.with_name(f"{DRAFT}{uuid.uuid4().hex}")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
