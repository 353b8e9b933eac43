"""What runs at load: the trial of which rows may share a batch, compilation, and warm-up."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessor

from ..batching.padding import Padding, pad, unpad
from ..batching.rows import Outputs, Row, outputs_agree
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.trial_results import FILE, TrialResults
from ..compat.transformers import run_before_other_processors
from ..config.handler_section import Compile
from ..config.model_config import WARM_UP, ModelConfig
from ..errors import RequestError
from ..generation.backends.base import ContinuousModel
from ..generation.generator import DECODER_ONLY
from ..model import Model
from ..telemetry.metrics import Meter
from ..types.request import Request
from .base import BaseTask

logger = logging.getLogger(__name__)

# The first token comes from the prompts, the second from what the model has kept of them.
NEW_TOKENS = 2


@dataclass(frozen=True)
class BatchingTrial:
    """A trial of the models of a checkpoint.

    Attributes:
        max_tokens: the longest row that a model may get; None if there is no limit.
        per_token: names of the outputs that have a value for each token.
        generates: whether the logits of new tokens are compared, not the outputs of one forward.
    """

    checkpoint: Checkpoint
    max_tokens: int | None
    padding: Padding
    outputs: tuple[str, ...]
    per_token: tuple[str, ...]
    generates: bool

    def set_batching(self, model: Model) -> None:
        """Find out which rows may share a batch, and set it as attributes of the model.

        Models that ignore the attention mask, or find the end of a text by its ids, may have other
        outputs for a row in a batch with a longer one. They run rows in groups of equal length, or
        each row in a separate batch if that changes outputs too.
        """
        max_tokens = self.max_tokens
        if max_tokens and self.generates:
            max_tokens = max(1, max_tokens - NEW_TOKENS)
        trial = self.checkpoint.probe_rows(max_tokens)
        first, *_, equally_long = trial.batches[0]
        name = self.checkpoint.architecture
        if trial.limit and all(self._agree(model, batch[:3]) for batch in trial.batches):
            model.padded_limit, model.runs_alone = trial.limit, False
        elif self._agree(model, [first, equally_long]):
            model.padded_limit, model.runs_alone = 0, False
            logger.info("padding changes the outputs of %s; it runs rows of equal length", name)
        else:
            model.padded_limit, model.runs_alone = 0, True
            logger.info("batches change the outputs of %s; it runs each row alone", name)

    def _agree(self, model: Model, rows: Sequence[Row]) -> bool:
        """Return whether rows have the same outputs together as alone."""
        run = self._generate if self.generates else self._forward
        try:
            alone = [output for row in rows for output in run(model, [row])]
            together = run(model, rows)
            return outputs_agree(
                together, alone, self.outputs, exact=model.capabilities.full_precision
            )
        except Exception as error:  # noqa: BLE001 - each family refuses padding in its own way
            logger.info("Rows did not run together in the trial: %s", type(error).__name__)
            return False

    def _forward(self, model: Model, rows: Sequence[Row]) -> list[Outputs]:
        outputs = model.forward(pad(rows, self.padding))
        return unpad(outputs, rows, self.padding, self.per_token)

    def _generate(self, model: Model, rows: Sequence[Row]) -> list[Outputs]:
        """Return the logits of each new token."""
        recorder = _Recorder()
        config = GenerationConfig(
            **DECODER_ONLY.reads_prompt,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            num_beams=1,
            pad_token_id=self.padding.ids["input_ids"],
        )
        first = run_before_other_processors(recorder)
        model.generate(pad(rows, self.padding), config, **first)
        steps = np.stack(recorder.steps)
        return [dict.fromkeys(self.outputs, steps[:, row]) for row in range(len(rows))]


class _Recorder(LogitsProcessor):
    """Keeps the logits of each step, and has every row continue with the same token."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        # A token that the model forbids has an infinite score.
        finite = torch.where(scores.isinf(), 0, scores)
        self.steps.append(finite.float().cpu().numpy())
        forced = torch.full_like(scores, -torch.inf)
        forced[:, scores.shape[-1] // 2] = 0
        return forced


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
    """Compile a model or have it pack rows, as the YAML says, and run warm-up batches.

    A compiled model runs padded rows. One that cannot run the batches is left to fail on what users
    send. With `WARM_UP=off` in the environment, only a model that compiles something runs them.

    Args:
        recorded: what the trials have found in a load with the same key; by default they run.
    """
    run = partial(_run, task, model, task.warmup_batches(config, model))
    packs, compiles = (
        task.packs_rows,
        config.pt2.compile.enable,
    )
    if compiles:
        task.set_batching(model)
    if compiles and compile_model(run, model, config.pt2.compile):
        if packs:
            logger.info("Compiled models run padded rows; packed ones need pt2.compile off")
        return
    if not (recorded and _takes(model, recorded)):
        task.choose_batching(model)
    if os.environ.get(WARM_UP) == "off" and not model.capabilities.compiles_shapes:
        return
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
        task.run(model, _example_rows(task), Meter())
        return
    task.run_warmup(model, batches)


def _example_rows(task: BaseTask[Any, Any]) -> Sequence[Any]:
    (rows,) = task.encode([task.parse(Request(**task.description.wire.example))])
    return [] if isinstance(rows, RequestError) else rows
