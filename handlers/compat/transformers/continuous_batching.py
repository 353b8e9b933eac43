"""transformers' own continuous batching, whose manager changes with each version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.configuration_utils import ContinuousBatchingConfig

# The id of the manager where a model has no end token.
NO_END = -1
# The manager keeps one block for itself.
SPARE_BLOCKS = 1


def create_manager(
    module: PreTrainedModel,
    ends: Sequence[int],
    *,
    block_size: int,
    blocks: int,
    max_batch_tokens: int,
) -> Any:
    """Return the manager of greedy texts of a model; it is not started.

    Args:
        module: the model, whose attention the manager changes.
        ends: the ids of the tokens that end a text.
        block_size: the number of tokens in a block of the cache.
        blocks: the number of blocks for texts.
        max_batch_tokens: the number of tokens in a step.

    Breaks when `ContinuousBatchingConfig` has other names, or the settings that are off here work.
    """
    return module.init_continuous_batching(
        GenerationConfig(do_sample=False, eos_token_id=list(ends) or [NO_END]),
        ContinuousBatchingConfig(
            block_size=block_size,
            num_blocks=blocks + SPARE_BLOCKS,
            max_batch_tokens=max_batch_tokens,
            # With shared blocks, texts that begin alike and run together become other texts.
            allow_block_sharing=False,
            # It fails where the manager starts without a text.
            use_async_batching=False,
        ),
    )


def is_stopping(manager: Any) -> bool:
    """Return whether a manager takes no more texts.

    Breaks when the manager has neither the event of transformers 5.5 nor the status of 5.23.
    """
    status = getattr(manager, "background_thread_status", None)
    if status is None:
        return bool(manager.stop_event.is_set())
    return status.can_accept_new_requests() is not None
