"""Attention of transformers' continuous batching, text by text.

transformers computes it with `scaled_dot_product_attention` for all texts of a step at once, with a
mask that hides from each text the keys of all others: the time grows with the square of their
number. Source: `integrations/sdpa_paged.py` of transformers 5.5, `integrations/sdpa_attention.py`
of 5.23, and `generation/continuous_batching/cache.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

ATTENTION = "text_by_text"
# The attention that it takes the place of: before 5.20 the manager has a name for it.
REPLACED = ("sdpa", "paged|sdpa")
# What is not computed here: attention sinks, capped scores, biases, and windows, whose models take
# no part in continuous batching.
UNKNOWN = ("s_aux", "softcap", "position_bias", "sliding_window")


def attend_text_by_text(module: PreTrainedModel) -> None:
    """Have a model whose manager is made, and not started, compute attention text by text.

    On an accelerator it would wait for the lengths in each layer. Eager attention stays as it is.

    Breaks when the manager reads the implementation before it starts, or makes masks for one whose
    name it does not know.
    """
    if module.device.type == "cpu" and module.config._attn_implementation in REPLACED:
        module.set_attn_implementation(ATTENTION)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute causal attention of the new tokens of each text to its cached ones.

    Args:
        module: the attention layer.
        query: of the new tokens of all texts, of shape (1, heads, tokens, size).
        key: like `query`, with key heads.
        value: like `key`.
        attention_mask: None.
        scaling: the factor of the scores.
        kwargs: what the manager gives, such as the cache and the lengths of the texts.

    Returns:
        a tensor of shape (1, tokens, heads, size), and no weights.

    Raises:
        NotImplementedError: the layer has sinks, caps scores, or has a bias or a window.

    Breaks when the manager's arguments or the attributes of `PagedAttentionCache` are other ones.
    """
    if attention_mask is not None or any(kwargs.get(name) is not None for name in UNKNOWN):
        raise NotImplementedError
    cached = _cached_states(module, key, value, kwargs)
    # Of shape (key heads, heads of a key head, tokens, size).
    queries = query[0].unflatten(0, (key.shape[1], -1))
    output = query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])
    texts = pairwise(kwargs["cu_seq_lens_q"].tolist())
    for (start, end), (keys, values) in zip(texts, cached, strict=True):
        new, length = end - start, keys.shape[1]
        attended = scaled_dot_product_attention(
            queries[:, :, start:end],
            _expanded(keys, queries.shape[1]),
            _expanded(values, queries.shape[1]),
            attn_mask=_mask(new, length) if 1 < new < length else None,
            is_causal=1 < new == length,
            scale=scaling,
        )
        output[0, start:end] = attended.flatten(0, 1).transpose(0, 1)
    return output, None


AttentionInterface.register(ATTENTION, paged_attention)


def _cached_states(
    module: torch.nn.Module, key: torch.Tensor, value: torch.Tensor, kwargs: dict[str, Any]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Write new keys and values, and read all of each text, of shape (key heads, tokens, size)."""
    cache = kwargs["cache"]
    if hasattr(cache, "layer_to_allocator"):  # transformers 5.23
        keys, values = (each[0] for each in cache.update(key, value, module.layer_idx, kwargs))
        for start, end in pairwise(kwargs["cu_seq_lens_k"].tolist()):
            yield keys[:, start:end], values[:, start:end]
        return
    group, layer = cache.layer_index_to_group_indices[module.layer_idx]
    caches = cache.key_cache[layer], cache.value_cache[layer]
    for stored, states in zip(caches, (key, value), strict=True):
        stored[kwargs["write_index"][group]] = states[0].transpose(0, 1)
    # `PagedAttentionCache.update` reads all texts into new memory, which takes most of the time.
    read = kwargs["read_index"][group]
    for start, end in pairwise(kwargs["cu_seq_lens_k"].tolist()):
        keys, values = (stored.index_select(0, read[start:end]) for stored in caches)
        yield keys.transpose(0, 1), values.transpose(0, 1)


def _expanded(states: torch.Tensor, count: int) -> torch.Tensor:
    """Return keys or values of shape (key heads, `count`, tokens, size), without copies."""
    return states[:, None].expand(-1, count, -1, -1)


def _mask(new: int, length: int) -> torch.Tensor:
    """Return which of `length` keys the last `new` tokens of a text attend to."""
    return torch.ones(new, length, dtype=torch.bool).tril(length - new)
