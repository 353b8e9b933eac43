"""A checkpoint into another format, as its YAML says, and how well the result agrees with it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from handlers import tasks
from handlers.batching.padding import Batch, pad, run
from handlers.batching.rows import Outputs, Row
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
AT_ONCE = 8  # Ranges are averaged over batches, so there must be many.


class ExportFormat(Protocol):
    """A format as the exporter uses it: `handlers.formats` lies above this package."""

    @property
    def lossy(self) -> bool:
        """Whether it rounds in float32, too."""

    def computes_in(self, dtype: str) -> str:
        """Return the dtype that a model computes in where its YAML says `dtype`."""

    def export(self, spec: ModelSpec, target: Path, inputs: tuple[str, ...]) -> None:
        """Write the checkpoint of a spec to a folder in this format."""

    def load(self, spec: ModelSpec) -> Model:
        """Load a model that was stored in this format."""


def export_checkpoint(
    export_format: ExportFormat,
    load_reference: Callable[[ModelSpec], Model],
    directory: Path,
    config: ModelConfig,
    target: Path,
    samples: Sequence[Request] = (),
) -> ParityReport | None:
    """Write the checkpoint in a folder into another folder, in the format of the YAML.

    Args:
        export_format: the format of the YAML.
        load_reference: loads the checkpoint itself, to compare the result with.
        directory: the checkpoint.
        config: the YAML.
        target: where the exported model is put, with `quality.json` where it was measured.
        samples: requests as the model will meet them. A lossy export, quantized, in another dtype
            than float32 or in a format that rounds, is calibrated on one half of them and measured
            on the other.

    Raises:
        ConfigError: the checkpoint is wrong or cannot be exported, or agrees too little.
    """
    kind = tasks.get(config.handler.mode)
    task = kind(read_checkpoint(directory, config.handler), config.handler)
    check_not_quantized(task.checkpoint.config, config.handler)
    lossy = _is_lossy(export_format, config)
    learned, unseen = (_rows(task, half) if lossy else [] for half in _halves(samples))
    spec = ModelSpec(
        directory,
        task.checkpoint,
        kind.auto_class,
        kind.outputs,
        config,
        torch.device("cpu"),
        calibration=_batches(task, learned),
        padding=task.padding if kind.packs and config.handler.BetterTransformer else None,
        per_token=kind.per_token,
    )
    inputs = dict.fromkeys((*task.tokenizer.model_input_names, "attention_mask"))
    with silence_exporters():
        export_format.export(spec, target, tuple(inputs))
    if not lossy:
        return None
    found = _measured(
        task,
        load_reference(_reference(spec)),
        export_format.load(replace(spec, directory=target)),
        unseen,
    )
    found.write(target)
    return found


def _halves(samples: Sequence[Request]) -> tuple[Sequence[Request], Sequence[Request]]:
    """Return two halves of like kind, however the file is ordered; one row is both."""
    mixed = random.Random(SEED).sample(samples, len(samples))
    return mixed[::2], mixed[1::2] or mixed


def _is_lossy(export_format: ExportFormat, config: ModelConfig) -> bool:
    coarse = export_format.computes_in(config.handler.dtype) != "float32"
    return export_format.lossy or coarse or config.handler.quantization is not None


def _rows(task: BaseTask[Any, Any], samples: Sequence[Request]) -> list[Row]:
    """Return the samples' rows.

    Raises:
        WrongConfig: there is none, or one is refused as a request would be.
    """
    if not samples:
        raise WrongConfig(
            "handler.calibration",
            "has no rows to calibrate and measure with",
            "name a JSON lines file of requests",
        )
    queries = [_accepted(sample, attempt(task.parse, sample)) for sample in samples]
    encoded = zip(samples, task.encode(queries), strict=True)
    return [row for sample, found in encoded for row in _accepted(sample, found)]


def _accepted(sample: Request, outcome: Outcome | RequestError) -> Outcome:
    if isinstance(outcome, RequestError):
        reason = str(outcome).rstrip(".")
        raise WrongConfig(place_of(sample), f"is refused ({reason})", "mend it")
    return outcome


def _batches(task: BaseTask[Any, Any], rows: Sequence[Row]) -> list[Batch]:
    return [
        pad(rows[first : first + AT_ONCE], task.padding) for first in range(0, len(rows), AT_ONCE)
    ]


def _reference(spec: ModelSpec) -> ModelSpec:
    """Return the spec of the checkpoint itself, in float32 and not compiled."""
    exact = spec.in_float32().with_settings(save_mode=CHECKPOINT, quantization=None)
    return replace(exact, config=exact.config.model_copy(update={"pt2": Pt2()}))


def _measured(
    task: BaseTask[Any, Any], reference: Model, exported: Model, rows: Sequence[Row]
) -> ParityReport:
    """Run rows through the checkpoint in float32 and through the exported model.

    Raises:
        WrongCheckpoint: they agree less than the YAML asks for.
    """
    found = compare_outputs(
        _outputs(task, reference, rows),
        _outputs(task, exported, rows),
        independent=task.checkpoint.independent_labels,
    )
    least = task.settings.min_agreement
    if found.label_agreement < least:
        raise WrongCheckpoint(
            f"{task.settings.save_mode} model",
            f"{found}; handler.min_agreement is {least:g}",
            "choose a finer quantization or dtype, give calibration rows that are like what will "
            "be asked, or lower min_agreement",
        )
    return found


def _outputs(task: BaseTask[Any, Any], model: Model, rows: Sequence[Row]) -> list[Outputs]:
    return run(
        model.forward,
        rows,
        padding=task.padding,
        budget=task.budget,
        per_token=task.outputs if task.generates else task.per_token,
        meter=Meter(),
    )
