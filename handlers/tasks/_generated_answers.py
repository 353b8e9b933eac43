"""Texts that a model generates for arrays, such as the pixels of an image."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase, StoppingCriteriaList

from handlers.batching.padding import Batch
from handlers.batching.rows import Outputs
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.errors import DeadlineExceeded
from handlers.generation.checkpoint_defaults import check_beams, with_checked_defaults
from handlers.generation.decoding import AS_GENERATED
from handlers.generation.stopping import DeadlineCriterion
from handlers.model import Model
from handlers.process.deadline import Deadline

# The maximum of new tokens of transformers' pipelines, where the checkpoint sets none.
NEW_TOKENS = 256
# GenerationConfig's own default, which a checkpoint without a limit may have written.
UNSET_MAX_LENGTH = 20
SEQUENCES = "sequences"
DECODER_PROMPT = "decoder_input_ids"


def answer_settings(
    checkpoint: Checkpoint, max_sequences: int, positions: int | None = None
) -> GenerationConfig:
    """Return a checkpoint's generation config as the pipelines use it for short answers.

    Answers are not sampled, since the rows of a batch would share random numbers.

    Args:
        checkpoint: the checkpoint.
        max_sequences: the maximum number of beams.
        positions: the maximum number of tokens of an answer, with the one that the decoder starts
            with; None for no limit.

    Raises:
        WrongCheckpoint: the generation config has a value that no request may have.
    """
    base = checkpoint.generation_config
    config = copy.deepcopy(with_checked_defaults(base, checkpoint.config))
    check_beams(config, max_sequences)
    config.do_sample, config.num_return_sequences = False, 1
    if base.max_new_tokens is None and base.max_length in (None, UNSET_MAX_LENGTH):
        config.max_length, config.max_new_tokens = None, NEW_TOKENS
    if positions is not None and config.max_new_tokens is not None:
        config.max_new_tokens = min(config.max_new_tokens, positions - 1)
    return config


def generate_answers(
    model: Model, config: GenerationConfig, deadline: Deadline, max_tokens: int | None = None
) -> Callable[[Batch], Mapping[str, torch.Tensor]]:
    """Return a function from a batch to the token ids of its answers, under `sequences`.

    It raises :class:`DeadlineExceeded` once the deadline has passed. A decoder's prompt and its
    answer have `max_tokens` at most.
    """

    def generate(batch: Batch) -> Mapping[str, torch.Tensor]:
        criterion = DeadlineCriterion(deadline)
        own = _within(config, batch, max_tokens)
        ids = model.generate(batch, own, stopping_criteria=StoppingCriteriaList([criterion]))
        if criterion.reached:
            raise DeadlineExceeded
        return {SEQUENCES: ids}

    return generate


def _within(config: GenerationConfig, batch: Batch, max_tokens: int | None) -> GenerationConfig:
    """Return a config whose new tokens fit after the prompt of the decoder."""
    if max_tokens is None or DECODER_PROMPT not in batch:
        return config
    room = max_tokens - batch[DECODER_PROMPT].shape[1]
    own = copy.deepcopy(config)
    own.max_length, own.max_new_tokens = None, min(config.max_new_tokens or room, room)
    return own


def answer_text(tokenizer: PreTrainedTokenizerBase, outputs: Outputs, **options: Any) -> str:
    """Return the text of a row's token ids."""
    ids = outputs[SEQUENCES].astype(int).tolist()
    return str(tokenizer.decode(ids, **{**AS_GENERATED, **options}))
