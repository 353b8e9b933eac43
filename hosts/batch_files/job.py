"""Scoring files of rows: what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_serve.hosts.archives import open_archive
from hf_serve.hosts.batch_files.chunks import Chunk, InputFile, find_files, parquet_module, plan
from hf_serve.hosts.batch_files.results import count_errors, file_of, open_folder
from hf_serve.hosts.batch_files.scorer import Scorer, ScoringJob


@dataclass(frozen=True)
class Planned:
    """A job, and what is missing of it.

    Attributes:
        missing: the chunks without results.
        errors: how many rows of the other chunks have an error.
    """

    job: ScoringJob
    files: Sequence[InputFile]
    missing: Sequence[Chunk]
    errors: int

    @property
    def rows(self) -> int:
        """How many rows the input has."""
        return sum(file.rows for file in self.files)

    @property
    def missing_rows(self) -> int:
        """How many rows have neither a result nor an error."""
        return sum(chunk.rows for chunk in self.missing)


def plan_job(
    archive: Path,
    source: Path,
    output: Path,
    *,
    column: str,
    output_format: str | None,
    parameters: dict[str, Any],
    chunk_rows: int,
    sha256: str | None = None,
) -> Planned:
    """Read the input, and open the folder of results.

    Args:
        output_format: the format of results; None for the format of the input.
        sha256: the digest that the archive must have; None for any.

    Raises:
        KitError: the archive, the input or the output is not what it has to be, or pyarrow, which
            Parquet needs, is not installed.
    """
    opened, paths = open_archive(archive, sha256), find_files(source, output)
    files = plan(paths, chunk_rows, column)
    own_format = "parquet" if all(file.kind == "parquet" for file in files) else "jsonl"
    if "parquet" in (output_format, own_format):
        parquet_module()
    job = ScoringJob(
        archive.resolve(),
        output.resolve(),
        output_format or own_format,
        column,
        parameters,
        opened.sha256,
    )
    open_folder(
        job.output,
        {
            "archive": {
                "name": opened.name,
                "version": opened.version,
                "sha256": opened.sha256,
            },
            "input": [
                {"file": _name(file.path, source), "sha256": file.sha256, "rows": file.rows}
                for file in files
            ],
            "column": column,
            "parameters": parameters,
            "format": job.output_format,
            "chunk_rows": chunk_rows,
        },
    )
    chunks = [chunk for file in files for chunk in file.chunks]
    done = {chunk: file_of(job.output, chunk.number, job.output_format) for chunk in chunks}
    missing = [chunk for chunk, path in done.items() if not path.exists()]
    errors = sum(count_errors(path) for path in done.values() if path.exists())
    return Planned(job, files, missing, errors)


def run_job(planned: Planned, on_progress: Callable[[int, int], None]) -> None:
    """Score the missing chunks in this process, one after the other.

    Args:
        on_progress: called with numbers of rows and of errors as they are predicted.

    Raises:
        KitError: the archive does not load.
    """
    scorer = Scorer(planned.job)
    for chunk in planned.missing:
        scorer.score(chunk, on_progress)


def _name(path: Path, source: Path) -> str:
    return path.name if path == source else str(path.relative_to(source))
