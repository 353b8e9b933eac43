"""The settings of a back end: the sampling parameters of a prompt, and the size of its cache."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedConfig

from ...checkpoints.model_spec import ModelSpec
from ...config.messages import shorten
from ...errors import WrongCheckpoint
from ...process.resources import memory_limit
from ..checkpoint_defaults import FILE_SETTINGS
from ..parameter_spec import ParameterSpec, specs_of
from ..parameters import GenerationParameters

# Whether a back end supports a parameter.
Supports = Callable[[ParameterSpec], bool]
MAX_SEED = 2**63 - 1
# The parameters of the choice of tokens.
SAMPLING_PARAMETERS: Mapping[str, ParameterSpec] = {
    name: spec for name, spec in specs_of(GenerationParameters).items() if spec.transformers
}
CPU = torch.device("cpu")
# Tokens in a block of OpenVINO's cache on CPUs.
BLOCK = 32
# The cache takes at most this fraction of the memory by default.
MEMORY_SHARE = 4
GIGABYTE = 10**9
# Tokens of a sequence, for models without a limit.
UNLIMITED = 4096
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "u8": 1}


def unsupported_parameters(supports: Supports) -> dict[str, ParameterSpec]:
    """Return the parameters that a back end does not support.

    A parameter that has no effect without another unsupported one is not among them.
    """
    return {
        name: spec
        for name, spec in SAMPLING_PARAMETERS.items()
        if not supports(spec) and (spec.needs is None or supports(SAMPLING_PARAMETERS[spec.needs]))
    }


def unsupported_message(name: str, value: Any, mode: str) -> str:
    """Return the sentence for a parameter with a value that a mode of serving does not support."""
    return f"{name} {shorten(json.dumps(value))} is not supported by {mode}; leave it out."


def effective_settings(
    defaults: Mapping[str, Any], parameters: GenerationParameters
) -> dict[str, Any]:
    """Return the values that are in effect for a prompt.

    Args:
        defaults: the values of the checkpoint's generation config.
        parameters: the parameters of the prompt, which take precedence.
    """
    of_generate = {
        name: spec.default for name, spec in SAMPLING_PARAMETERS.items() if spec.default is not None
    }
    given = {**of_generate, **defaults, **parameters.for_generate, **parameters.for_processors}
    has_effect = {
        None: True,
        "do_sample": bool(given.get("do_sample")),
        "num_beams": given.get("num_beams", 1) > 1,
    }
    return {
        name: each for name, each in given.items() if has_effect[SAMPLING_PARAMETERS[name].needs]
    }


def checkpoint_settings(
    generation_config: GenerationConfig, supports: Supports, mode: str
) -> dict[str, Any]:
    """Return the values of a checkpoint's generation config that a back end supports.

    Args:
        generation_config: the checkpoint's generation config.
        supports: whether the back end supports a parameter.
        mode: the keys of the YAML that select the back end, for the message.

    Raises:
        WrongCheckpoint: the back end would ignore one of the values.
    """
    given = {
        name: value for name, value in generation_config.to_dict().items() if value is not None
    }
    unsupported = {name: spec.neutral for name, spec in unsupported_parameters(supports).items()}
    unsupported |= {name: setting.neutral for name, setting in FILE_SETTINGS.items()}
    ignored = [name for name, neutral in unsupported.items() if given.get(name, neutral) != neutral]
    if ignored:
        raise WrongCheckpoint(
            "generation_config.json",
            f"has {ignored[0]}, which is not supported by {mode}",
            "remove it there, or leave continuousBatching out",
        )
    return {
        name: given[name]
        for name, spec in SAMPLING_PARAMETERS.items()
        if supports(spec) and name in given
    }


def cache_blocks(spec: ModelSpec, precision: str, device: torch.device = CPU) -> int:
    """Return the number of blocks of a cache, of 32 tokens each.

    Args:
        spec: the model.
        precision: OpenVINO's name of the data type of the cache.
        device: the device of the cache.
    """
    size = BYTES.get(precision, 4)
    block = BLOCK * bytes_per_token(spec.checkpoint.config.get_text_config(), size)
    return max(1, cache_bytes(spec, size, BLOCK, device) // block)


def cache_bytes(spec: ModelSpec, size: int, block: int, device: torch.device = CPU) -> int:
    """Return the size of the cache in bytes.

    It is `cache_size` of the YAML. By default it has room for `max_num_seqs` sequences of the
    model's limit, and takes at most the worker's share of a quarter of the memory, or of the free
    memory of a GPU.

    Args:
        spec: the model.
        size: bytes of a number in the cache.
        block: tokens of a block; a sequence takes whole blocks.
        device: the device of the cache.
    """
    handler = spec.config.handler
    if handler.cache_size:
        return int(handler.cache_size * GIGABYTE)
    token = bytes_per_token(spec.checkpoint.config.get_text_config(), size)
    wanted = handler.max_num_seqs * math.ceil(longest_sequence(spec) / block) * block * token
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


def longest_sequence(spec: ModelSpec) -> int:
    """Return the maximum number of tokens of a prompt and its new text together."""
    limits = (spec.checkpoint.limit, spec.config.handler.max_total_tokens)
    return min(filter(None, limits), default=UNLIMITED)


def bytes_per_token(config: PreTrainedConfig, size: int) -> int:
    """Return the size of the keys and values of one token in all layers, for numbers of a size."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width * size)
