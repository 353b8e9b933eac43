"""Samples as rows, and the comparison of a model with its checkpoint on them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from handlers.batching.batches import Batch
from handlers.batching.rows import BaseRow, Outputs
from handlers.errors import RequestError, WrongCheckpoint, WrongConfig, attempt
from handlers.export.parity_report import ParityReport, compare_outputs
from handlers.export.vector_agreement import compare_vectors
from handlers.model import Model
from handlers.tasks.base import BaseTask
from handlers.types.request import Request, place_of

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

SEED = 0
# NNCF averages activation ranges over batches, so small batches give better estimates.
CALIBRATION_BATCH_SIZE = 8
# Outputs of a chunk are compared and dropped: those of all rows take gigabytes if each token has a
# score for every word of a vocabulary.
CHUNK = 64


class PlacedRow(NamedTuple):
    """A row and the place of its sample."""

    place: str
    row: BaseRow


def split(samples: Sequence[Request]) -> tuple[Sequence[Request], Sequence[Request]]:
    """Split samples randomly into two halves; a single sample is in both."""
    shuffled = random.Random(SEED).sample(samples, len(samples))
    return shuffled[::2], shuffled[1::2] or shuffled


def encode(task: BaseTask[Any, Any], samples: Sequence[Request]) -> list[PlacedRow]:
    """Return the rows of all samples.

    Raises:
        WrongConfig: there are no samples, or one is not a valid request.
    """
    if not samples:
        raise WrongConfig(
            "handler.calibration",
            "has no rows for calibration and evaluation",
            "set it to a JSON lines file of requests",
        )
    queries = [_require_valid(sample, attempt(task.parse, sample)) for sample in samples]
    encoded = zip(samples, task.encode(queries), strict=True)
    return [
        PlacedRow(place_of(sample), row)
        for sample, outcome in encoded
        for row in _require_valid(sample, outcome)
    ]


def calibration_batches(task: BaseTask[Any, Any], rows: Sequence[PlacedRow]) -> list[Batch]:
    """Return batches of the rows."""
    return [
        task.collate(group)
        for chunk in _chunks(rows, CALIBRATION_BATCH_SIZE)
        for group in task.groups([each.row for each in chunk])
    ]


def evaluate(
    task: BaseTask[Any, Any], reference: Model, model: Model, rows: Sequence[PlacedRow]
) -> ParityReport:
    """Compare a model with the checkpoint in float32.

    Rows are packed where the models support it, as they are served.
    """
    for each in (reference, model):
        task.choose_batching(each)
    compared = task.reference_rows(reference, [each.row for each in rows])
    expected, found = (_outputs(task, each, compared) for each in (reference, model))
    if task.description.outputs.are_vectors:
        return compare_vectors(expected, found)
    return compare_outputs(
        expected,
        found,
        independent=task.checkpoint.independent_labels,
        numbers=task.description.outputs.numbers,
        places=[each.place for each in rows],
        labels=task.labels,
    )


def refusal(report: ParityReport, task: BaseTask[Any, Any]) -> WrongCheckpoint:
    """Return the error for a model whose agreement is below `handler.min_agreement`."""
    settings = task.settings
    changes = f"; the labels that differ most clearly: {report.describe_changes()}"
    return WrongCheckpoint(
        f"{settings.save_mode} model",
        f"{report}; handler.min_agreement is {settings.min_agreement:g}"
        f"{changes if report.changed else ''}",
        "use a more precise quantization or dtype, calibration rows that resemble production "
        "requests, or a lower min_agreement",
    )


def _require_valid(sample: Request, outcome: Outcome | RequestError) -> Outcome:
    if isinstance(outcome, RequestError):
        reason = str(outcome).rstrip(".")
        raise WrongConfig(place_of(sample), f"is refused ({reason})", "correct or remove this row")
    return outcome


def _outputs(task: BaseTask[Any, Any], model: Model, rows: Sequence[BaseRow]) -> Iterator[Outputs]:
    for chunk in _chunks(rows, CHUNK):
        yield from map(task.decision_scores, task.outputs_for_comparison(model, chunk))


def _chunks(rows: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
