"""Scoring files of rows with Ray Data: what is missing, on the actors that there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_serve.hosts.archives import open_archive
from hf_serve.hosts.ray_data.chunks import Chunk, InputFile, find_files, plan
from hf_serve.hosts.ray_data.results import count_errors, file_of, open_folder
from hf_serve.hosts.ray_data.scorer import Scorer, ScoringJob

# Blocks of Ray Data are tasks; a chunk each, or several where there are very many.
MAX_BLOCKS = 10_000


@dataclass(frozen=True)
class Actors:
    """The actors of a job.

    Attributes:
        count: how many load the archive; None for one on each node.
        num_cpus: the cores, and so the threads, of each; None for all of the smallest node.
    """

    count: int | None = None
    num_cpus: int | None = None
    num_gpus: float = 0.0


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
        KitError: the archive, the input or the output is not what it has to be.
    """
    opened, paths = open_archive(archive, sha256), find_files(source, output)
    files = plan(paths, chunk_rows, column)
    own_format = "parquet" if all(file.kind == "parquet" for file in files) else "jsonl"
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


def run_job(
    planned: Planned, ray: Any, actors: Actors, on_progress: Callable[[int, int], None]
) -> None:
    """Score the missing chunks on the Ray that this process is connected to.

    Args:
        on_progress: called with the rows and the errors of each chunk that is done.

    Raises:
        KitError: the archive does not load.
    """
    from ray import data  # noqa: PLC0415

    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    smallest = min(int(node["Resources"]["CPU"]) for node in nodes)
    chunks = list(planned.missing)
    dataset = data.from_items(
        [{"chunk": chunk} for chunk in chunks],
        override_num_blocks=min(len(chunks), MAX_BLOCKS),
    ).map_batches(
        Scorer,
        fn_constructor_args=(planned.job,),
        batch_size=1,
        compute=data.ActorPoolStrategy(size=min(actors.count or len(nodes), len(chunks))),
        num_cpus=actors.num_cpus or smallest,
        num_gpus=actors.num_gpus,
    )
    for row in dataset.iter_rows():
        on_progress(int(row["rows"]), int(row["errors"]))


def _name(path: Path, source: Path) -> str:
    return path.name if path == source else str(path.relative_to(source))
