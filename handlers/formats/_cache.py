"""The size of the key-value cache of an engine that runs many texts at once."""

from __future__ import annotations

import math

from transformers import PreTrainedConfig

from handlers.checkpoints.model_spec import ModelSpec
from handlers.runtime.memory_limit import memory_limit

# Tokens in a block of OpenVINO's cache on CPUs.
BLOCK = 32
# The share of the memory that the cache may take, where the YAML does not say.
MEMORY_SHARE = 4
GIGABYTE = 10**9
# Tokens of a text, for models without a limit.
UNLIMITED = 4096
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "u8": 1}


def cache_blocks(spec: ModelSpec, precision: str) -> int:
    """Return the number of blocks of the cache.

    It is what `cache_size` of the YAML holds, or what `max_num_seqs` texts of the model's limit
    need if that is less than the worker's share of a quarter of the memory.

    Args:
        spec: the model.
        precision: OpenVINO's name of the data type of the cache.
    """
    handler = spec.config.handler
    block = BLOCK * _bytes_per_token(spec.checkpoint.config.get_text_config(), precision)
    if handler.cache_size:
        return max(1, int(handler.cache_size * GIGABYTE) // block)
    limits = (spec.checkpoint.limit, handler.max_total_tokens)
    longest = min(filter(None, limits), default=UNLIMITED)
    wanted = handler.max_num_seqs * math.ceil(longest / BLOCK)
    share = memory_limit() // MEMORY_SHARE // spec.config.maxWorkers
    return max(1, min(wanted, share // block))


def _bytes_per_token(config: PreTrainedConfig, precision: str) -> int:
    """Return the size of the keys and values of one token in all layers."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * BYTES.get(precision, 4))
