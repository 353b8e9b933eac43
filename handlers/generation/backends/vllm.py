"""Text generation by vLLM, for `engine: vllm`.

vLLM requires other versions of packages, so it runs in another process, with the Python that the
YAML names: :mod:`hf_serve.handlers.generation.backends.vllm_process`.

The checkpoint's own processor reads images, in the worker, and vLLM gets its pixels: another
version of transformers, or torchvision instead of Pillow, would make others. vLLM takes items, each
with a part of the tensors and the places of its vectors among the tokens.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from transformers import GenerationConfig, PreTrainedConfig

from ...checkpoints.checkpoint_files import check_weights
from ...checkpoints.dtypes import quantization_method
from ...checkpoints.model_spec import ModelSpec
from ...errors import (
    InternalError,
    RequestError,
    RequestTooLarge,
    Unprocessable,
    WrongCheckpoint,
    WrongConfig,
)
from ...model import Model
from ...process.threads import LazyLoad
from ...types.model_info import GenerationInfo
from ..generator import Prompt, end_tokens
from ..parameters import MAX_TOP_TOKENS, GenerationParameters, ParameterSpec
from ..text_grammar import TextGrammar
from .base import (
    GIGABYTE,
    MAX_SEED,
    SAMPLING_PARAMETERS,
    bytes_per_token,
    cache_bytes,
    checkpoint_settings,
    effective_settings,
    longest_sequence,
    unsupported_message,
    unsupported_parameters,
)
from .process import BackendModel, BackendProcess, BackendProgram

logger = logging.getLogger(__name__)

PROGRAM = BackendProgram(
    "vLLM",
    Path(__file__).with_name("vllm_process.py"),
    "the checkpoint",
    "its messages are in the log of this worker; correct what they say, or leave engine out",
)
MODE = "engine: vllm"
NOT_WITH_GRAMMARS = ("min_new_tokens", "allowed_token_ids")
# Tokens of a block of vLLM's cache on CPUs.
BLOCK = 128
# Modules of the worker or of the archive would take the place of vLLM's own.
DROPPED = {"PYTHONPATH", "PYTHONHOME"}
ENVIRONMENT = {
    # All processes of vLLM run what prepares torchvision.
    "PYTHONPATH": str(Path(__file__).parents[2] / "compat" / "vllm_startup"),
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # A fork would keep the connection to the worker open after the end of its parent.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
# The worker preprocesses images, their normalization included, and there are no videos.
IMAGE_ARGUMENTS = {
    "limit_mm_per_prompt": {"video": 0},
    "mm_processor_cache_gb": 0,
    "mm_device_do_normalize": False,
}
HAS_VLLM = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"


class VllmModel(BackendModel):
    """A model that vLLM runs.

    Args:
        process: vLLM's process.
        capacity: the maximum number of sequences that run or wait.
        generation_config: the checkpoint's generation config.
        has_grammars: whether vLLM supports grammars for this model.
        config: the model's config, which says what its images are.
        load_static: loads the model for forward passes and batches, which explanations need.
    """

    def __init__(
        self,
        process: BackendProcess,
        capacity: int,
        generation_config: GenerationConfig,
        has_grammars: bool,
        config: PreTrainedConfig,
        load_static: Callable[[], Model],
    ) -> None:
        self._config = config
        super().__init__(process, capacity, LazyLoad(load_static), has_gradients=True)
        self._defaults, self._has_grammars = _checkpoint_settings(generation_config), has_grammars
        self._ends = end_tokens(generation_config)

    @property
    def generation(self) -> GenerationInfo:
        grammars = () if self._has_grammars else ("grammar", "tools")
        return GenerationInfo(
            PROGRAM.name, refused=sorted([*unsupported_parameters(_supports), *grammars])
        )

    def _settings(self, prompt: Prompt, number: int) -> dict[str, Any]:
        settings = sampling_settings(self._defaults, prompt.parameters, number)
        # vLLM would allow no token where the grammar excludes those that these parameters allow.
        for name in NOT_WITH_GRAMMARS if prompt.grammar else ():
            if getattr(prompt.parameters, name):
                raise Unprocessable(
                    f"{name} is not supported with response_format, grammar or tools by this model,"
                    f" which has {MODE}; leave one of them out."
                )
        if prompt.grammar:
            settings.pop("min_tokens", None)
        ends = prompt.parameters.end_tokens(self._ends)
        # vLLM also ends a sequence at the end token of its tokenizer.
        ignores = {} if self._has_grammars and self._ends <= ends else {"ignore_eos": True}
        stops = {"max_tokens": prompt.new_tokens, "stop_token_ids": sorted(ends)}
        return {**settings, **ignores, **stops}

    def _media(self, prompt: Prompt) -> Mapping[str, Any]:
        images = images_of(prompt, self._config)
        return {"images": images} if images else {}

    def _constraints(self, grammar: TextGrammar) -> dict[str, Any]:
        compilable = grammar.compilable()
        if not self._has_grammars:
            raise Unprocessable(
                "response_format, grammar and tools are not supported by this model with"
                f" {MODE}: the end token of its tokenizer ends no text; leave them out."
            )
        return {"grammar": compilable.lark}

    def _failure(self, reason: str) -> RequestError:
        logger.error("vLLM failed at a sequence: %s", reason)
        return InternalError(RuntimeError())


def load_vllm(spec: ModelSpec, dtype: str, load_static: Callable[[], Model]) -> Model:
    """Start vLLM with a checkpoint.

    Args:
        spec: the checkpoint and the YAML.
        dtype: the dtype that it computes in.
        load_static: loads the model for forward passes and batches, which explanations need.

    Raises:
        WrongConfig: there is no vLLM, or its cache is too small for a sequence.
        WrongCheckpoint: vLLM does not load the checkpoint.
    """
    handler, generation_config = spec.config.handler, spec.checkpoint.generation_config
    if reads_images(spec):
        items_of_family(spec.checkpoint.config)
    _checkpoint_settings(generation_config)
    python = handler.vllm_python or sys.executable
    _check_python(python, handler.vllm_python)
    check_weights(spec.directory, spec.checkpoint.config, allow_pickle=handler.allow_pickle)
    environment = _environment(spec.device)
    process = BackendProcess(
        PROGRAM,
        engine_arguments(spec, dtype),
        python,
        environment,
        hang_seconds=spec.config.hang_seconds,
    )
    capacity = handler.max_num_seqs + handler.max_waiting
    return VllmModel(
        process,
        capacity,
        generation_config,
        _has_grammars(spec),
        spec.checkpoint.config,
        load_static,
    )


def engine_arguments(spec: ModelSpec, dtype: str) -> dict[str, Any]:
    """Return the values of vLLM's `AsyncEngineArgs`.

    Raises:
        WrongConfig: the cache is too small for a sequence.
    """
    is_quantized, handler = quantization_method(spec.checkpoint.config), spec.config.handler
    given = {
        "enable_chunked_prefill": handler.enable_chunked_prefill,
        "max_num_batched_tokens": handler.max_num_batched_tokens,
    }
    return {
        **{name: value for name, value in given.items() if value is not None},
        "model": str(spec.directory),
        # Only grammars and images need the tokenizer.
        "skip_tokenizer_init": not (_has_grammars(spec) or reads_images(spec)),
        "tokenizer_mode": "hf",
        "structured_outputs_config": {"backend": "guidance"},
        "trust_remote_code": False,
        "load_format": "safetensors",
        "use_tqdm_on_load": False,
        "dtype": "auto" if is_quantized else dtype,
        "generation_config": "vllm",
        "max_model_len": longest_sequence(spec),
        "max_num_seqs": handler.max_num_seqs,
        "max_logprobs": MAX_TOP_TOKENS,
        "enable_prefix_caching": handler.enable_prefix_caching is not False,
        # Otherwise all workers would sample the same texts, and again after a restart.
        "seed": secrets.randbits(31),
        "disable_log_stats": True,
        **_cache_arguments(spec, getattr(torch, dtype).itemsize),
        **(IMAGE_ARGUMENTS if reads_images(spec) else {}),
    }


def sampling_settings(
    defaults: Mapping[str, Any], parameters: GenerationParameters, number: int
) -> dict[str, Any]:
    """Return the values of vLLM's `SamplingParams` for a sequence of a prompt.

    Args:
        defaults: the values of the checkpoint's generation config.
        parameters: the parameters of the prompt.
        number: which of the prompt's sequences it is; with a seed, each has another.

    Raises:
        Unprocessable: vLLM does not support a parameter.
    """
    given = effective_settings(defaults, parameters)
    for name, value in given.items():
        spec = SAMPLING_PARAMETERS[name]
        if not _supports(spec) and value not in (None, spec.neutral):
            raise Unprocessable(unsupported_message(name, value, MODE))
    names = ((SAMPLING_PARAMETERS[name].vllm, value) for name, value in given.items())
    settings = {name: value for name, value in names if name}
    if not given.get("do_sample"):
        settings["temperature"] = 0.0
    if parameters.seed is not None and given.get("do_sample"):
        settings["seed"] = (parameters.seed + number) % MAX_SEED
    if parameters.returns_logprobs:
        settings["logprobs"] = parameters.top_n_tokens
    return settings


def reads_images(spec: ModelSpec) -> bool:
    """Return whether prompts have images."""
    return spec.auto_class == "AutoModelForImageTextToText"


def _has_grammars(spec: ModelSpec) -> bool:
    """Return whether vLLM supports grammars: the tokenizer's end token must end a text."""
    checkpoint = spec.checkpoint
    return checkpoint.tokenizer.eos_token_id in end_tokens(checkpoint.generation_config)


def _checkpoint_settings(generation_config: GenerationConfig) -> dict[str, Any]:
    return checkpoint_settings(generation_config, _supports, MODE)


def _supports(spec: ParameterSpec) -> bool:
    return spec.vllm is not None


def _cache_arguments(spec: ModelSpec, size: int) -> dict[str, int]:
    """Return the size of the cache; none for an accelerator, whose memory vLLM takes by itself."""
    handler = spec.config.handler
    if spec.device.type != "cpu" and handler.cache_size is None:
        return {}
    token = bytes_per_token(spec.checkpoint.config.get_text_config(), size)
    cache, text = cache_bytes(spec, size, BLOCK), longest_sequence(spec)
    if cache < text * token:
        raise WrongConfig(
            "handler.cache_size",
            f"is {cache / GIGABYTE:.3g} GB{'' if handler.cache_size else ' by default'}, and a text"
            f" of {text:,} tokens takes {text * token / GIGABYTE:.3g} GB",
            f"raise it, or set max_total_tokens to {cache // token:,} or less",
        )
    # vLLM keeps one block for itself.
    return {"kv_cache_memory_bytes": cache + BLOCK * token}


def _check_python(python: str, named: str | None) -> None:
    where = "handler.vllm_python" if named else "handler.engine"
    try:
        done = subprocess.run(
            [python, "-P", "-c", HAS_VLLM], env=_environment(torch.device("cpu")), check=False
        )
    except OSError as error:
        raise WrongConfig(
            where,
            f"is {python}, which cannot be started ({error.strerror})",
            "set it to the Python executable of an environment with vLLM",
        ) from None
    if done.returncode:
        raise WrongConfig(
            where,
            f"is {named or 'vllm'}, and {'that' if named else 'this'} Python has no vLLM",
            "install vLLM in another environment, and set handler.vllm_python to its Python"
            " executable",
        )


def _environment(device: torch.device) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    return {"VLLM_LOGGING_LEVEL": "WARNING", **kept, **ENVIRONMENT, **_visible(device)}


def _visible(device: torch.device) -> dict[str, str]:
    """Return the variable that shows vLLM only the worker's GPU."""
    if device.type != "cuda":
        return {}
    index, names = device.index or 0, os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": names.split(",")[index] if names else str(index)}


Array = npt.NDArray[Any]
# How vLLM joins the tensors of several items: as the rows of a new first dimension, or along the
# one that they have.
Joined = Literal["batched", "flat"]
# The maximum size of the pixels of a prompt. The program reads a command as one line.
MAX_BYTES = 1 << 28


@dataclass(frozen=True)
class Item:
    """What vLLM reads of one image, or of one of its tiles.

    Attributes:
        tensors: its model inputs, and how vLLM joins them with the tensors of other items.
        vectors: the number of its vectors; None where all items of a prompt have one number.
    """

    tensors: Mapping[str, tuple[Joined, Array]]
    vectors: int | None = None


# Makes the items of a prompt, given the model inputs of its images and the model's config.
ItemsOf = Callable[[Mapping[str, Array], PreTrainedConfig], Iterable[Item]]


def _by_image(media: Mapping[str, Array], _: PreTrainedConfig) -> Iterator[Item]:
    """Images of one size: LLaVA."""
    return (Item({"pixel_values": ("batched", each)}) for each in media["pixel_values"])


def _by_tile(media: Mapping[str, Array], _: PreTrainedConfig) -> Iterator[Item]:
    """Tiles, into which large images are split and which have one size: Idefics3."""
    (pixels,), (mask,) = media["pixel_values"], media["pixel_attention_mask"]
    for number in range(len(pixels)):
        tile = slice(number, number + 1)
        tensors: dict[str, tuple[Joined, Array]] = {
            "pixel_values": ("flat", pixels[tile]),
            "pixel_attention_mask": ("flat", mask[tile].astype(np.bool_)),
            "num_patches": ("batched", np.array(1)),
        }
        yield Item(tensors)


def _by_grid(media: Mapping[str, Array], config: PreTrainedConfig) -> Iterator[Item]:
    """Images of any size, whose grids say which patches they have: Qwen2-VL and Qwen2.5-VL."""
    start, merged = 0, config.vision_config.spatial_merge_size**2
    for grid in media["image_grid_thw"]:
        patches = prod(map(int, grid))
        tensors: dict[str, tuple[Joined, Array]] = {
            "pixel_values": ("flat", media["pixel_values"][start : start + patches]),
            "image_grid_thw": ("batched", grid),
        }
        yield Item(tensors, patches // merged)
        start += patches


# The families whose texts were compared with transformers'.
FAMILIES: Mapping[str, ItemsOf] = {
    "llava": _by_image,
    "idefics3": _by_tile,
    "qwen2_vl": _by_grid,
    "qwen2_5_vl": _by_grid,
}
# Parts of a model that vLLM has for LLaVA, too, but which take other tensors.
OTHER_VISION = ("pixtral",)


def items_of_family(config: PreTrainedConfig) -> ItemsOf:
    """Return how the images of a model are given to vLLM.

    Raises:
        WrongCheckpoint: they are not given to it.
    """
    vision = getattr(getattr(config, "vision_config", None), "model_type", "")
    items = FAMILIES.get(config.model_type)
    if items is None or vision in OTHER_VISION:
        *names, last = FAMILIES
        raise WrongCheckpoint(
            "config.json",
            f"is of a {config.model_type} model{f' with {vision}' if items else ''}, whose images"
            f" engine: vllm does not support: it supports {', '.join(names)} and {last}",
            "leave engine out",
        )
    return items


def images_of(prompt: Prompt, config: PreTrainedConfig) -> list[dict[str, Any]]:
    """Return the images of a prompt as a command has them.

    Raises:
        RequestTooLarge: their pixels are too many for a command.
    """
    if not prompt.media:
        return []
    if (size := sum(each.nbytes for each in prompt.media.values())) > MAX_BYTES:
        raise RequestTooLarge(
            f"The images of the prompt have {size / 1e6:,.0f} MB when they are processed, and at"
            f" most {MAX_BYTES / 1e6:,.0f} MB are supported; send fewer or smaller images."
        )
    items = list(items_of_family(config)(prompt.media, config))
    tokens = np.asarray(prompt.features["input_ids"])
    places = np.flatnonzero(tokens == config.image_token_id)
    found, end = [], 0
    for item in items:
        begin, end = end, end + (item.vectors or len(places) // len(items))
        found.append(_command(item, places[begin:end]))
    return found


def _command(item: Item, places: npt.NDArray[np.intp]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for name, (_, array) in item.tensors.items():
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return {
        "places": places.tolist(),
        "hash": digest.hexdigest(),
        "tensors": {name: _tensor(*each) for name, each in item.tensors.items()},
    }


def _tensor(joined: Joined, array: Array) -> dict[str, Any]:
    return {
        "joined": joined,
        "dtype": str(array.dtype),
        "shape": array.shape,
        "data": base64.b64encode(np.ascontiguousarray(array).data).decode(),
    }
