"""Made-up batches that run at load, so that no user's request pays for what happens once."""

from __future__ import annotations

import logging
from typing import Any

from transformers import GenerationConfig

from handlers.batching import Batch, pad
from handlers.config import ModelConfig
from handlers.formats.base import Model
from handlers.rows import Row
from handlers.tasks.base import BaseTask

logger = logging.getLogger(__name__)

USUAL_LENGTHS = (16, 48)


def warmup_batches(task: BaseTask[Any, Any], config: ModelConfig) -> list[Batch]:
    """Return batches of the lengths that the YAML declares, with few rows, many and one.

    One row comes last: compilers treat a size of 1 as a case of its own.
    """
    longest = task.longest or max(USUAL_LENGTHS)
    declared = config.handler.warmup_lengths or USUAL_LENGTHS
    lengths = dict.fromkeys(min(length, longest) for length in declared)
    counts = [*sorted({2, max(2, config.batchSize)}), 1]
    return [
        pad([_row(task, length)] * count, task.padding) for count in counts for length in lengths
    ]


def warm_up(task: BaseTask[Any, Any], model: Model, batches: list[Batch]) -> None:
    """Run the batches; a model that cannot is left to fail on what users send."""
    try:
        if task.generates:
            pad_id = task.padding.ids.get("input_ids", 0)
            model.generate(batches[0], GenerationConfig(max_new_tokens=2, pad_token_id=pad_id))
            return
        for batch in batches:
            model.forward(batch)
    except Exception as error:  # noqa: BLE001 - nobody asked for these rows
        logger.warning("warm-up failed (%s); the model serves cold", type(error).__name__)


def _row(task: BaseTask[Any, Any], length: int) -> Row:
    names = [name for name in task.tokenizer.model_input_names if name != "attention_mask"]
    word = len(task.tokenizer) // 2
    return Row({name: [word if name == "input_ids" else 0] * length for name in names})
