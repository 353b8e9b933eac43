"""The attention that a module of transformers computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_layers import GenericForSequenceClassification

UNMASKED = "sdpa_without_masks"
AttentionInterface.register(UNMASKED, sdpa_attention_forward)


@contextmanager
def without_masks(config: PreTrainedConfig) -> Iterator[None]:
    """Have a model make no attention masks within the block.

    The code of transformers that makes masks cannot be traced, and makes none for an attention
    whose masks it does not know.

    Breaks when modules take their attention from elsewhere than `config._attn_implementation`, or
    make masks for an attention that has no function of masks.
    """
    given = config._attn_implementation
    if given == "sdpa":
        config._attn_implementation = UNMASKED
    try:
        yield
    finally:
        config._attn_implementation = given


@contextmanager
def same_attention(config: PreTrainedConfig) -> Iterator[None]:
    """Restore the attention of a model after the block.

    Whisper's `generate` changes it to compute the times of tokens, and does not change it back.

    Breaks when modules take their attention from elsewhere than `config._attn_implementation`.
    """
    given = config._attn_implementation
    try:
        yield
    finally:
        if config._attn_implementation != given:
            config._attn_implementation = given


def has_recurrent_state(module: PreTrainedModel) -> bool:
    """Return whether a model has a state from which tokens cannot be removed again, as Mamba has.

    Breaks when `generate` learns in another way than by `_is_stateful` that a model cannot be
    assisted.
    """
    return bool(module._is_stateful)


def reads_last_token(module: PreTrainedModel) -> bool:
    """Return whether a head reads the last token of each text, as the heads of decoders do.

    Breaks when decoders for classification have another base class.
    """
    return isinstance(module, GenericForSequenceClassification)
