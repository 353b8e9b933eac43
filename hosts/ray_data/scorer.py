"""The actor of Ray Data that scores chunks with an archive's engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray

from hf_serve.hosts.archives import import_from, open_archive


@dataclass(frozen=True)
class ScoringJob:
    """What every actor is told.

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
    """Scores chunks, each to one file."""

    def __init__(self, job: ScoringJob) -> None:
        self._job = job
        archive = open_archive(job.archive, job.sha256)
        import_from(archive.folder)
        # These import the archive's own `handlers`.
        from hf_serve.hosts.batch_predictor import BatchPredictor  # noqa: PLC0415

        device = "cuda" if ray.get_gpu_ids() else "cpu"
        self._model = BatchPredictor(archive.folder, device, job.parameters)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Score the chunks of a batch; returns the rows and the errors of each.

        A chunk whose file is there was scored before its actor or node ended.
        """
        counts = [self._score(chunk) for chunk in batch["chunk"]]
        rows, errors = zip(*counts, strict=True)
        return {"rows": np.array(rows), "errors": np.array(errors)}

    def _score(self, chunk: Any) -> tuple[int, int]:
        from hf_serve.handlers.errors import BadRequest  # noqa: PLC0415
        from hf_serve.hosts.ray_data.chunks import read  # noqa: PLC0415
        from hf_serve.hosts.ray_data.results import count_errors, file_of, write_results  # noqa: PLC0415

        path = file_of(self._job.output, chunk.number, self._job.output_format)
        if path.exists():
            return chunk.rows, count_errors(path)
        block = read(chunk, self._job.column)
        inputs = [each for place, each in enumerate(block.inputs) if place not in block.errors]
        predicted = iter(self._model.predict(inputs, are_cells=chunk.kind == "csv"))
        outcomes = [
            (None, BadRequest(block.errors[place]).body())
            if place in block.errors
            else next(predicted)
            for place in range(len(block.inputs))
        ]
        write_results(path, block, outcomes)
        return len(outcomes), sum(error is not None for _, error in outcomes)
