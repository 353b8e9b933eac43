"""Greedy texts of an engine that runs texts side by side, compared with those of `generate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from handlers.batching.rows import require_outputs
from handlers.export.evaluation import PlacedRow
from handlers.export.parity_report import TextAgreement
from handlers.generation.generator import Prompt
from handlers.generation.parameters import GenerationParameters
from handlers.model import Model
from handlers.tasks.base import BaseTask
from handlers.telemetry.meter import Meter

MAX_TEXTS = 16
MAX_NEW_TOKENS = 32


def compare_texts(
    task: BaseTask[Any, Any], reference: Model, model: Model, rows: Sequence[PlacedRow]
) -> TextAgreement:
    """Compare the greedy texts of two models.

    The texts of an engine may differ from those of `generate`, although the model is the same: it
    computes texts together, in another order of additions.

    Args:
        task: the task, which generates.
        reference: the checkpoint, which runs `generate`.
        model: the model whose texts run side by side.
        rows: texts; the models continue the first ones.
    """
    prompts = [_greedy(each.row) for each in rows[:MAX_TEXTS]]
    pairs = zip(_texts(task, reference, prompts), _texts(task, model, prompts), strict=True)
    compared = [_compare(expected, found) for expected, found in pairs]
    tokens = sum(count for count, _ in compared)
    different = sum(1 for _, is_equal in compared if not is_equal)
    return TextAgreement(len(prompts), len(prompts) - different, tokens, 1 - different / tokens)


def _greedy(row: Any) -> Prompt:
    """Return the first half of a row, which may be a whole text, as a prompt."""
    prompt: Prompt = row
    length, new_tokens = (len(prompt) + 1) // 2, min(prompt.new_tokens, MAX_NEW_TOKENS)
    return replace(
        prompt,
        features={name: values[:length] for name, values in prompt.features.items()},
        # No text ends early: a few tokens say little.
        parameters=GenerationParameters(min_new_tokens=new_tokens),
        new_tokens=new_tokens,
    )


def _texts(
    task: BaseTask[Any, Any], model: Model, prompts: Sequence[Prompt]
) -> Iterator[list[int]]:
    """Yield the new tokens of each prompt."""
    together = task.settings.max_num_seqs
    for start in range(0, len(prompts), together):
        outcomes = task.run(model, prompts[start : start + together], Meter())
        for outputs in require_outputs(outcomes):
            yield outputs["sequences"][0].tolist()


def _compare(expected: Sequence[int], found: Sequence[int]) -> tuple[int, bool]:
    """Return the number of tokens up to the first that differs, and whether none does."""
    for count, (token, other) in enumerate(zip(expected, found, strict=True), 1):
        if token != other:
            return count, False
    return len(expected), True
