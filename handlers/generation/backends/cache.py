"""The size of the key-value cache of an engine that runs many texts at once."""

from __future__ import annotations

import math

import torch
from transformers import PreTrainedConfig

from handlers.checkpoints.model_spec import ModelSpec
from handlers.runtime.cgroup import memory_limit

CPU = torch.device("cpu")
# Tokens in a block of OpenVINO's cache on CPUs.
BLOCK = 32
# The share of the memory that the cache may take, where the YAML does not say.
MEMORY_SHARE = 4
GIGABYTE = 10**9
# Tokens of a text, for models without a limit.
UNLIMITED = 4096
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "u8": 1}


def cache_blocks(spec: ModelSpec, precision: str, device: torch.device = CPU) -> int:
    """Return the number of blocks of a cache, of 32 tokens each.

    Args:
        spec: the model.
        precision: OpenVINO's name of the data type of the cache.
        device: where the cache is.
    """
    size = BYTES.get(precision, 4)
    block = BLOCK * bytes_per_token(spec.checkpoint.config.get_text_config(), size)
    return max(1, cache_bytes(spec, size, BLOCK, device) // block)


def cache_bytes(spec: ModelSpec, size: int, block: int, device: torch.device = CPU) -> int:
    """Return the size of the cache.

    It is `cache_size` of the YAML, or what `max_num_seqs` texts of the model's limit need if that
    is less than the worker's share of a quarter of the memory; of a GPU, of what is free.

    Args:
        spec: the model.
        size: bytes of a number in the cache.
        block: tokens of a block, of which a text has a whole number.
        device: where the cache is.
    """
    handler = spec.config.handler
    if handler.cache_size:
        return int(handler.cache_size * GIGABYTE)
    token = bytes_per_token(spec.checkpoint.config.get_text_config(), size)
    wanted = handler.max_num_seqs * math.ceil(longest_text(spec) / block) * block * token
    return min(wanted, _available_memory(device) // MEMORY_SHARE // _sharing_workers(spec, device))


def _available_memory(device: torch.device) -> int:
    """Return the free memory of a GPU, or the memory that this process may use, in bytes."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return memory_limit()


def _sharing_workers(spec: ModelSpec, device: torch.device) -> int:
    """Return how many workers share the memory of a device; TorchServe gives them GPUs in turn."""
    devices = max(1, torch.cuda.device_count()) if device.type == "cuda" else 1
    return math.ceil(spec.config.maxWorkers / devices)


def longest_text(spec: ModelSpec) -> int:
    """Return the maximum tokens of a prompt and its new text together."""
    limits = (spec.checkpoint.limit, spec.config.handler.max_total_tokens)
    return min(filter(None, limits), default=UNLIMITED)


def bytes_per_token(config: PreTrainedConfig, size: int) -> int:
    """Return the size of the keys and values of one token in all layers.

    Args:
        config: the model's config.
        size: bytes of a number in the cache.
    """
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width * size)
