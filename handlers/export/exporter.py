"""Exports a checkpoint to the format of its YAML and measures the agreement of both."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from handlers import tasks
from handlers.batching.padding import Batch, pad, run
from handlers.batching.rows import Outputs, Row, require_outputs
from handlers.checkpoints.checkpoint import read_checkpoint
from handlers.checkpoints.model_spec import ModelSpec
from handlers.checkpoints.prequantized import check_not_quantized
from handlers.config.handler_section import CHECKPOINT, Pt2
from handlers.config.model_config import ModelConfig
from handlers.errors import RequestError, WrongCheckpoint, WrongConfig, attempt
from handlers.export.parity_report import ParityReport, compare_outputs
from handlers.runtime.model import Model
from handlers.schemas.request import Request, place_of
from handlers.tasks.base import BaseTask
from handlers.telemetry.log_levels import silence_exporters
from handlers.telemetry.meter import Meter

Outcome = TypeVar("Outcome")

SEED = 0
# NNCF averages activation ranges over batches, so small batches give better estimates.
CALIBRATION_BATCH_SIZE = 8


class ExportFormat(Protocol):
    """The part of a format that the exporter uses; `handlers.formats` is a layer above."""

    @property
    def lossy(self) -> bool:
        """Whether outputs differ from the checkpoint even in float32."""

    def computes_in(self, dtype: str) -> str:
        """Return the dtype that a model computes in for a value of `handler.dtype`."""

    def export(self, spec: ModelSpec, target: Path, inputs: tuple[str, ...]) -> None:
        """Export a checkpoint to a directory."""

    def load(self, spec: ModelSpec) -> Model:
        """Load a model of this format."""


def export_checkpoint(
    export_format: ExportFormat,
    load_reference: Callable[[ModelSpec], Model],
    directory: Path,
    config: ModelConfig,
    target: Path,
    samples: Sequence[Request] = (),
) -> ParityReport | None:
    """Export the checkpoint in a directory to the format of the YAML.

    An export is lossy if it is quantized, computes in another dtype than float32, or its format is
    lossy. It is calibrated on one half of the samples and evaluated on the other.

    Args:
        export_format: the format of the YAML.
        load_reference: loads the checkpoint itself, for the comparison.
        directory: the checkpoint.
        config: the YAML.
        target: the output directory; a lossy export includes `quality.json`.
        samples: representative requests; required for a lossy export.

    Returns:
        The agreement of a lossy export with the checkpoint, None for other exports.

    Raises:
        ConfigError: the checkpoint is invalid or cannot be exported, or the agreement is below
            `handler.min_agreement`.
    """
    task_class = tasks.get(config.handler.mode)
    task = task_class(read_checkpoint(directory, config.handler), config.handler)
    check_not_quantized(task.checkpoint.config, config.handler)
    lossy = _is_lossy(export_format, config)
    calibration, evaluation = (_encode(task, part) if lossy else [] for part in _split(samples))
    spec = ModelSpec(
        directory,
        task.checkpoint,
        task_class.auto_class,
        task_class.outputs,
        config,
        torch.device("cpu"),
        calibration=_batches(task, calibration),
        padding=task.padding if task_class.packs and config.handler.BetterTransformer else None,
        per_token=task_class.per_token,
    )
    inputs = dict.fromkeys((*task.tokenizer.model_input_names, "attention_mask"))
    with silence_exporters():
        export_format.export(spec, target, tuple(inputs))
    if not lossy:
        return None
    report = _evaluate(
        task,
        load_reference(_reference(spec)),
        export_format.load(replace(spec, directory=target)),
        evaluation,
    )
    report.write(target)
    return report


def _split(samples: Sequence[Request]) -> tuple[Sequence[Request], Sequence[Request]]:
    """Split samples randomly into two halves; a single sample is in both."""
    shuffled = random.Random(SEED).sample(samples, len(samples))
    return shuffled[::2], shuffled[1::2] or shuffled


def _is_lossy(export_format: ExportFormat, config: ModelConfig) -> bool:
    reduced = export_format.computes_in(config.handler.dtype) != "float32"
    return export_format.lossy or reduced or config.handler.quantization is not None


def _encode(task: BaseTask[Any, Any], samples: Sequence[Request]) -> list[Row]:
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
    return [row for sample, outcome in encoded for row in _require_valid(sample, outcome)]


def _require_valid(sample: Request, outcome: Outcome | RequestError) -> Outcome:
    if isinstance(outcome, RequestError):
        reason = str(outcome).rstrip(".")
        raise WrongConfig(place_of(sample), f"is refused ({reason})", "correct or remove this row")
    return outcome


def _batches(task: BaseTask[Any, Any], rows: Sequence[Row]) -> list[Batch]:
    return [
        pad(rows[start : start + CALIBRATION_BATCH_SIZE], task.padding)
        for start in range(0, len(rows), CALIBRATION_BATCH_SIZE)
    ]


def _reference(spec: ModelSpec) -> ModelSpec:
    """Return the spec of the checkpoint itself in float32, without torch.compile."""
    exact = spec.in_float32().with_settings(save_mode=CHECKPOINT, quantization=None)
    return replace(exact, config=exact.config.model_copy(update={"pt2": Pt2()}))


def _evaluate(
    task: BaseTask[Any, Any], reference: Model, exported: Model, rows: Sequence[Row]
) -> ParityReport:
    """Compare the checkpoint in float32 with the exported model.

    Raises:
        WrongCheckpoint: the agreement is below `handler.min_agreement`.
    """
    report = compare_outputs(
        _outputs(task, reference, rows),
        _outputs(task, exported, rows),
        independent=task.checkpoint.independent_labels,
    )
    minimum = task.settings.min_agreement
    if report.label_agreement < minimum:
        raise WrongCheckpoint(
            f"{task.settings.save_mode} model",
            f"{report}; handler.min_agreement is {minimum:g}",
            "use a more precise quantization or dtype, calibration rows that resemble production "
            "requests, or a lower min_agreement",
        )
    return report


def _outputs(task: BaseTask[Any, Any], model: Model, rows: Sequence[Row]) -> list[Outputs]:
    outcomes = run(
        model.forward,
        rows,
        padding=task.padding,
        budget=task.budget,
        per_token=task.outputs if task.generates else task.per_token,
        meter=Meter(),
    )
    return require_outputs(outcomes)
