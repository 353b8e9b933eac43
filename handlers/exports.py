"""A checkpoint into another format, as its YAML says, and how well the result agrees with it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from handlers.agreement import Agreement, agreement
from handlers.attempts import attempt
from handlers.batching import Batch, pad, run
from handlers.checkpoint import read_checkpoint
from handlers.config import ModelConfig
from handlers.errors import RequestError, WrongCheckpoint, WrongConfig
from handlers.formats import pretrained
from handlers.formats.base import Model, Wanted
from handlers.meter import Meter
from handlers.pairs import computes_in
from handlers.quantized import check_exported
from handlers.quiet import quiet_export
from handlers.registry import format_module, task_class
from handlers.requests import Request
from handlers.rows import Outputs, Row
from handlers.samples import place_of
from handlers.sections import Pt2
from handlers.tasks.base import BaseTask

Outcome = TypeVar("Outcome")

SEED = 0
AT_ONCE = 8  # Ranges are averaged over batches, so there must be many.


def export(
    directory: Path, config: ModelConfig, target: Path, samples: Sequence[Request] = ()
) -> Agreement | None:
    """Write the checkpoint in a folder into another folder, in the format of the YAML.

    Args:
        directory: the checkpoint.
        config: the YAML.
        target: where the exported model is put, with `quality.json` where it was measured.
        samples: requests as the model will meet them. A lossy export, quantized, in another dtype
            than float32 or in a format that rounds, is calibrated on one half of them and measured
            on the other.

    Raises:
        ConfigError: the checkpoint is wrong or cannot be exported, or agrees too little.
    """
    kind = task_class(config.handler.mode)
    task = kind(read_checkpoint(directory, config.handler), config.handler)
    module: Any = format_module(config.handler.save_mode)
    check_exported(task.checkpoint.config, config.handler)
    lossy = _is_lossy(config)
    learned, unseen = (_rows(task, half) if lossy else [] for half in _halves(samples))
    wanted = Wanted(
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
    with quiet_export():
        module.export(wanted, target, tuple(inputs))
    if not lossy:
        return None
    found = _measured(task, wanted, replace(wanted, directory=target), unseen)
    found.write(target)
    return found


def _halves(samples: Sequence[Request]) -> tuple[Sequence[Request], Sequence[Request]]:
    """Return two halves of like kind, however the file is ordered; one row is both."""
    mixed = random.Random(SEED).sample(samples, len(samples))
    return mixed[::2], mixed[1::2] or mixed


def _is_lossy(config: ModelConfig) -> bool:
    handler = config.handler
    rounds = getattr(format_module(handler.save_mode), "LOSSY", False)
    coarse = computes_in(handler.save_mode, handler.dtype) != "float32"
    return rounds or coarse or handler.quantization is not None


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


def _measured(
    task: BaseTask[Any, Any], wanted: Wanted, made: Wanted, rows: Sequence[Row]
) -> Agreement:
    """Run rows through the checkpoint in float32 and through what was made of it.

    Raises:
        WrongCheckpoint: they agree less than the YAML asks for.
    """
    plain = wanted.config.handler.model_copy(
        update={"dtype": "float32", "save_mode": "pretrained", "quantization": None}
    )
    exact = replace(
        wanted, config=wanted.config.model_copy(update={"handler": plain, "pt2": Pt2()})
    )
    format_of = format_module(wanted.config.handler.save_mode)
    found = agreement(
        _outputs(task, pretrained.load(exact), rows),
        _outputs(task, format_of.load(made), rows),
        independent=task.checkpoint.independent_labels,
    )
    least = wanted.config.handler.min_agreement
    if found.label_agreement < least:
        raise WrongCheckpoint(
            f"{wanted.config.handler.save_mode} model",
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
