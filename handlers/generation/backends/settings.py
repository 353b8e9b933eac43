"""What a prompt asks for, by the names of transformers, for an engine that is another program."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedConfig

from handlers.checkpoints.model_spec import ModelSpec
from handlers.config.messages import shorten
from handlers.errors import WrongCheckpoint
from handlers.generation.checkpoint_defaults import SETTINGS_OF_FILE
from handlers.generation.parameter_spec import ParameterSpec, specs_of
from handlers.generation.parameters import GenerationParameters
from handlers.process.resources import memory_limit

# Whether an engine does a parameter.
Does = Callable[[ParameterSpec], bool]
MAX_SEED = 2**63 - 1
# The parameters that choose tokens.
CHOOSING: Mapping[str, ParameterSpec] = {
    name: spec for name, spec in specs_of(GenerationParameters).items() if spec.transformers
}
CPU = torch.device("cpu")
# Tokens in a block of OpenVINO's cache on CPUs.
BLOCK = 32
# The share of the memory that the cache may take, where the YAML does not say.
MEMORY_SHARE = 4
GIGABYTE = 10**9
# Tokens of a text, for models without a limit.
UNLIMITED = 4096
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "u8": 1}


def lacking_parameters(does: Does) -> dict[str, ParameterSpec]:
    """Return the parameters that an engine lacks, but those that need another one that it lacks."""
    return {
        name: spec
        for name, spec in CHOOSING.items()
        if not does(spec) and (spec.needs is None or does(CHOOSING[spec.needs]))
    }


def refusal(name: str, value: Any, engine: str) -> str:
    """Return the sentence for a parameter with a value that an engine cannot do."""
    return f"{name} is {shorten(json.dumps(value))}, which {engine} cannot do; leave it out."


def given_settings(base: Mapping[str, Any], parameters: GenerationParameters) -> dict[str, Any]:
    """Return what a prompt asks for, without what does nothing.

    Args:
        base: the values of the checkpoint's generation config.
        parameters: those of the prompt, which take precedence.
    """
    defaults = {name: spec.default for name, spec in CHOOSING.items() if spec.default is not None}
    given = {**defaults, **base, **parameters.for_generate, **parameters.for_kit}
    does_something = {
        None: True,
        "do_sample": bool(given.get("do_sample")),
        "num_beams": given.get("num_beams", 1) > 1,
    }
    return {name: each for name, each in given.items() if does_something[CHOOSING[name].needs]}


def settings_of_checkpoint(base: GenerationConfig, does: Does, engine: str) -> dict[str, Any]:
    """Return the values of a checkpoint's generation config that an engine knows.

    Args:
        base: the checkpoint's generation config.
        does: whether the engine does a parameter.
        engine: the keys of the YAML that select the engine, for the error message.

    Raises:
        WrongCheckpoint: it has one that the engine would ignore.
    """
    given = {name: value for name, value in base.to_dict().items() if value is not None}
    lacking = {name: spec.neutral for name, spec in lacking_parameters(does).items()}
    lacking |= {name: setting.neutral for name, setting in SETTINGS_OF_FILE.items()}
    unknown = [name for name, neutral in lacking.items() if given.get(name, neutral) != neutral]
    if unknown:
        raise WrongCheckpoint(
            "generation_config.json",
            f"has {unknown[0]}, which {engine} cannot do",
            "remove it there, or leave continuousBatching out",
        )
    return {name: given[name] for name, spec in CHOOSING.items() if does(spec) and name in given}


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
