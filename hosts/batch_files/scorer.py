"""A loaded archive that scores chunks of files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_serve.hosts.archives import import_from, open_archive

# Rows that are predicted between two reports of progress.
STEP = 100


@dataclass(frozen=True)
class ScoringJob:
    """What everything that scores chunks is told.

    Attributes:
        archive: the path of the archive, on each machine.
        output: the folder of results, which all machines share.
        output_format: `jsonl` or `parquet`.
    """

    archive: Path
    output: Path
    output_format: str
    column: str
    parameters: dict[str, Any] = field(default_factory=dict)
    sha256: str | None = None


class Scorer:
    """Scores chunks, each to one file.

    Args:
        device: where the model runs; "" for the first GPU, or for the processor without one.
    """

    def __init__(self, job: ScoringJob, device: str = "") -> None:
        self._job = job
        archive = open_archive(job.archive, job.sha256)
        import_from(archive.folder)
        # These import the archive's own `handlers`.
        from hf_serve.hosts.batch_predictor import BatchPredictor  # noqa: PLC0415

        self._model = BatchPredictor(archive.folder, device, job.parameters)

    def score(self, chunk: Any, on_progress: Callable[[int, int], None]) -> None:
        """Write the results of a chunk.

        Args:
            on_progress: called with numbers of rows and of errors as they are predicted.
        """
        from hf_serve.handlers.errors import BadRequest  # noqa: PLC0415
        from hf_serve.hosts.batch_files.chunks import read  # noqa: PLC0415
        from hf_serve.hosts.batch_files.results import count_errors, file_of, write_results  # noqa: PLC0415

        path = file_of(self._job.output, chunk.number, self._job.output_format)
        if path.exists():  # It was scored before its process or machine ended.
            on_progress(chunk.rows, count_errors(path))
            return
        block = read(chunk, self._job.column)
        outcomes = list[Any]()
        for start in range(0, len(block.inputs), STEP):
            places = range(start, min(start + STEP, len(block.inputs)))
            inputs = [block.inputs[place] for place in places if place not in block.errors]
            predicted = iter(self._model.predict(inputs, are_cells=chunk.kind == "csv"))
            found = [
                (None, BadRequest(block.errors[place]).body())
                if place in block.errors
                else next(predicted)
                for place in places
            ]
            outcomes += found
            on_progress(len(found), sum(error is not None for _, error in found))
        write_results(path, block, outcomes)
