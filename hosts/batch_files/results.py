"""The folder of results: one file for each chunk, and a manifest that says of what.

A file appears under its name when it is complete, so what has a file is done.
"""

from __future__ import annotations

import base64
import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic_core import PydanticSerializationError, to_json

from hf_serve.handlers.errors import ErrorBody, KitError
from hf_serve.hosts.batch_files.chunks import ERROR, RESULT, Block, parquet_module

Format = Literal["jsonl", "parquet"]
MANIFEST = "manifest.json"
DRAFT = re.compile(r"\.draft-[0-9a-f]{32}")
# How a line ends whose row has no error.
NO_ERROR = to_json({ERROR: None})[1:] + b"\n"
Outcome = tuple[Any, ErrorBody | None]


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
        drafts = [path for path in folder.iterdir() if DRAFT.fullmatch(path.name)]
        before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        if before is None and len(list(folder.iterdir())) > len(drafts):
            raise WrongOutput(f"{folder} has other files; name an empty or a new folder.")
        _check_manifest(folder, manifest if before is None else before, manifest)
        for draft in drafts:
            draft.unlink(missing_ok=True)
        if before is None:
            _write(file, to_json(manifest, indent=2))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its manifest is not JSON"
        raise WrongOutput(f"{folder} cannot be used for results: {reason}.") from None


def _check_manifest(folder: Path, before: Any, manifest: dict[str, Any]) -> None:
    found = before if isinstance(before, dict) else {}
    changed = [key for key in manifest if found.get(key) != manifest[key]]
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
        _write(path, _parquet(block, outcomes))
    else:
        _write(path, b"".join(_lines(block, outcomes)))


def count_errors(path: Path) -> int:
    """Return how many rows of a file of results have an error."""
    if path.suffix == ".parquet":
        return int(parquet_module().count_values(path, ERROR))
    with path.open("rb") as file:
        return sum(not line.endswith(NO_ERROR) for line in file)


def _lines(block: Block, outcomes: Sequence[Outcome]) -> Iterator[bytes]:
    for row, (result, error) in zip(_objects(block.rows), outcomes, strict=True):
        added = _json({RESULT: result, ERROR: error})
        start = b"{" if row == b"{}" else row[:-1] + b","
        yield start + added[1:] + b"\n"


def _objects(rows: list[bytes] | Any) -> list[bytes]:
    """Return rows as objects of JSON."""
    if isinstance(rows, list):
        return rows
    return [_json(_plain(row)) for row in rows.to_pylist()]


def _json(value: Any) -> bytes:
    """Return compact JSON, with null for numbers that are not finite."""
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:  # Half of a surrogate pair, which stays escaped.
        return json.dumps(value, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """Return a value with base64 in place of bytes, at every depth."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _parquet(block: Block, outcomes: Sequence[Outcome]) -> bytes:
    results = [None if error else _json(result).decode() for result, error in outcomes]
    errors = [error and {**error, "message": _unicode(error["message"])} for _, error in outcomes]
    rows = _texts(block.rows) if isinstance(block.rows, list) else block.rows
    return bytes(parquet_module().encode(rows, {RESULT: results}, {ERROR: errors}))


def _texts(objects: Sequence[bytes]) -> dict[str, list[str | None]]:
    """Return rows as columns of texts: what is no text is JSON, as its type may change by row."""
    rows = [json.loads(each) for each in objects]
    names = dict.fromkeys(name for row in rows for name in row)
    return {_unicode(name): [_text(row.get(name)) for row in rows] for name in names}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return _unicode(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _unicode(text: str) -> str:
    """Return a text with a question mark in place of each half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def _write(path: Path, content: Any) -> None:
    """Write a file under another name first, so that nobody sees a part of it."""
    draft = path.with_name(f".draft-{uuid.uuid4().hex}")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
