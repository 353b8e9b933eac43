"""Scoring files of rows with Ray Data, on the actors that there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray import data

from hf_serve.hosts.batch_files import scorer
from hf_serve.hosts.batch_files.job import Planned
from hf_serve.hosts.batch_files.scorer import ScoringJob

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


class Scorer:
    """The actor of Ray Data that scores chunks with an archive's engine."""

    def __init__(self, job: ScoringJob) -> None:
        self._scorer = scorer.Scorer(job, "cuda" if ray.get_gpu_ids() else "cpu")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Score the chunks of a batch; returns the rows and the errors of each."""
        counts = [self._score(chunk) for chunk in batch["chunk"]]
        rows, errors = zip(*counts, strict=True)
        return {"rows": np.array(rows), "errors": np.array(errors)}

    def _score(self, chunk: Any) -> tuple[int, int]:
        counts = list[tuple[int, int]]()
        self._scorer.score(chunk, lambda rows, errors: counts.append((rows, errors)))
        rows, errors = zip(*counts, strict=True)
        return sum(rows), sum(errors)


def run_job(planned: Planned, actors: Actors, on_progress: Callable[[int, int], None]) -> None:
    """Score the missing chunks on the Ray that this process is connected to.

    Args:
        on_progress: called with the rows and the errors of each chunk that is done.

    Raises:
        KitError: the archive does not load.
    """
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
