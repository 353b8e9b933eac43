"""Warm-up: batches of made-up rows at load, and torch.compile where `pt2.compile` enables it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from handlers.checkpoints.load_trials import FILE, TrialResults
from handlers.config.handler_section import Compile
from handlers.config.model_config import ModelConfig
from handlers.errors import RequestError
from handlers.generation.backends.base import ContinuousModel
from handlers.model import Model
from handlers.tasks.base import BaseTask
from handlers.telemetry.meter import Meter
from handlers.types.request import Request

logger = logging.getLogger(__name__)


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


def warm_up(
    task: BaseTask[Any, Any],
    model: Model,
    config: ModelConfig,
    recorded: TrialResults | None = None,
) -> None:
    """Compile a model or have it pack rows, as the YAML says, and run made-up batches.

    A compiled model runs padded rows. One that cannot run the batches is left to fail on what users
    send.

    Args:
        task: the task.
        model: the model.
        config: the YAML.
        recorded: what the trials have found in a load with the same key; by default they run.
    """
    run = partial(_run, task, model, task.warmup_batches(config, model))
    packs, compiles = config.handler.BetterTransformer and task.packs, config.pt2.compile.enable
    if compiles:
        task.set_batching(model)
    if compiles and compile_model(run, model, config.pt2.compile):
        if packs:
            logger.info("Compiled models run padded rows; packed ones need pt2.compile off")
        return
    if not (recorded and _takes(model, recorded)):
        task.choose_batching(model)
    try:
        run()
    except Exception as error:  # noqa: BLE001 - no request has these rows
        logger.warning("warm-up failed (%s); the model serves cold", type(error).__name__)


def _takes(model: Model, recorded: TrialResults) -> bool:
    """Have a model take the results of trials, and return whether it does."""
    if model.trial_results is None:
        return False
    try:
        model.take_trial_results(recorded)
    except ValueError as error:
        logger.warning("%s is ignored (no such packing: %s); trials run", FILE, error)
        return False
    return True


def _run(task: BaseTask[Any, Any], model: Model, batches: list[list[Any]]) -> None:
    if isinstance(model, ContinuousModel):
        task.run(model, _sample_rows(task), Meter())
        return
    task.run_made_up(model, batches)


def _sample_rows(task: BaseTask[Any, Any]) -> Sequence[Any]:
    (rows,) = task.encode([task.parse(Request(**task.sample))])
    return [] if isinstance(rows, RequestError) else rows
