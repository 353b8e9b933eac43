"""Warm-up: batches of made-up rows at load, and torch.compile where `pt2.compile` enables it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from transformers import GenerationConfig

from handlers.batching.packing import TILE, WIDTHS
from handlers.batching.padding import pad
from handlers.batching.rows import Row
from handlers.checkpoints.trial_rows import trial_rows
from handlers.config.handler_section import Compile
from handlers.config.model_config import ModelConfig
from handlers.errors import RequestError
from handlers.generation.continuous import ContinuousModel
from handlers.runtime.model import Model
from handlers.schemas.request import Request
from handlers.tasks._batching_trial import set_batching
from handlers.tasks.base import BaseTask
from handlers.telemetry.meter import Meter

logger = logging.getLogger(__name__)

DEFAULT_LENGTHS = (16, 48)
NEW_TOKENS = 3


def compile_model(run: Callable[[], None], model: Model, options: Compile) -> bool:
    """Compile a model for the rows that `run` runs; return whether it is compiled.

    One that does not compile, or does not run compiled, runs eagerly.
    """
    try:
        if not model.compile(options):
            return False
        run()
    except Exception as error:  # noqa: BLE001
        logger.warning("torch.compile failed (%s); the model runs eagerly", type(error).__name__)
        model.compile(None)
        return False
    logger.info("Compiled model with backend %s, mode %s", options.backend, options.mode)
    return True


def warmup_batches(task: BaseTask[Any, Any], config: ModelConfig, model: Model) -> list[list[Row]]:
    """Return batches of the lengths that the YAML declares, with few rows, many and one.

    One row comes last: compilers treat a size of 1 as a special case. For an engine that
    compiles for each shape there is, unless the YAML declares lengths, also a row of every width
    that one alone may get, as wide as packed rows may be.
    """
    declared = config.handler.warmup_lengths or DEFAULT_LENGTHS
    max_tokens = (task.max_tokens or max(declared)) - (NEW_TOKENS if task.generates else 0)
    lengths = dict.fromkeys(min(length, max(1, max_tokens)) for length in declared)
    counts = [*sorted({2, max(2, config.batchSize)}), 1]
    shapes = dict.fromkeys(
        (max(1, min(count, task.budget // length)), length)
        for count in counts
        for length in lengths
    )
    batches = [[_row(task, length)] * count for count, length in shapes]
    if config.handler.warmup_lengths or not model.compiles_shapes:
        return batches
    widest = min(max_tokens, max(WIDTHS))
    return batches + [[_row(task, width)] for width in range(TILE, widest + 1, TILE)]


def choose_batching(task: BaseTask[Any, Any], model: Model) -> None:
    """Have a model pack rows where the YAML and its outputs allow it, or else pad them."""
    if isinstance(model, ContinuousModel):
        return
    if task.packs and task.settings.BetterTransformer:
        trial = trial_rows(task.checkpoint, task.max_tokens)
        model.pack(trial, task.padding, task.per_token)
    # Packed rows have no padding, also in graphs that were exported for them.
    if not model.packs:
        set_batching(task, model)


def warm_up(task: BaseTask[Any, Any], model: Model, config: ModelConfig) -> None:
    """Compile a model or have it pack rows, as the YAML says, and run made-up batches.

    A compiled model runs padded rows. One that cannot run the batches is left to fail on what users
    send.
    """
    run = partial(_run, task, model, warmup_batches(task, config, model))
    packs, compiles = config.handler.BetterTransformer and task.packs, config.pt2.compile.enable
    if compiles:
        set_batching(task, model)
    if compiles and compile_model(run, model, config.pt2.compile):
        if packs:
            logger.info("Compiled models run padded rows; packed ones need pt2.compile off")
        return
    choose_batching(task, model)
    try:
        run()
    except Exception as error:  # noqa: BLE001 - no request has these rows
        logger.warning("warm-up failed (%s); the model serves cold", type(error).__name__)


def _run(task: BaseTask[Any, Any], model: Model, batches: list[list[Row]]) -> None:
    if isinstance(model, ContinuousModel):
        task.run(model, _sample_rows(task), Meter())
        return
    if task.generates:
        pad_id = task.padding.ids.get("input_ids", 0)
        new = GenerationConfig(max_new_tokens=NEW_TOKENS, pad_token_id=pad_id)
        for batch in (batches[0], batches[-1]):
            model.generate(pad(batch, task.padding), new)
        return
    for batch in batches:
        task.run(model, batch, Meter())


def _sample_rows(task: BaseTask[Any, Any]) -> Sequence[Any]:
    (rows,) = task.encode([task.parse(Request(**task.sample))])
    return [] if isinstance(rows, RequestError) else rows


def _row(task: BaseTask[Any, Any], length: int) -> Row:
    names = [name for name in task.tokenizer.model_input_names if name != "attention_mask"]
    word = len(task.tokenizer) // 2
    return Row({name: [word if name == "input_ids" else 0] * length for name in names})
