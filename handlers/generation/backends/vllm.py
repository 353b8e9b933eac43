"""Text generation by vLLM, for `engine: vllm`.

vLLM requires other versions of packages than the kit, so it runs in a process of its own, with the
Python that the YAML names. See :mod:`handlers.generation.backends.vllm_process`.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from handlers.checkpoints.checkpoint_files import check_weights
from handlers.checkpoints.dtypes import quantization_method
from handlers.checkpoints.model_spec import ModelSpec
from handlers.errors import InternalError, RequestError, Unprocessable, WrongConfig
from handlers.generation.backends.process import BackendModel, BackendProcess, BackendProgram
from handlers.generation.backends.settings import (
    CHOOSING,
    GIGABYTE,
    MAX_SEED,
    bytes_per_token,
    cache_bytes,
    given_settings,
    lacking_parameters,
    longest_text,
    refusal,
    settings_of_checkpoint,
)
from handlers.generation.generator import Prompt, end_tokens
from handlers.generation.parameter_spec import ParameterSpec
from handlers.generation.parameters import MAX_TOP_TOKENS, GenerationParameters
from handlers.generation.text_grammar import TextGrammar
from handlers.model import Model
from handlers.process.threads import LazyLoad
from handlers.types.model_info import GenerationInfo

logger = logging.getLogger(__name__)

PROGRAM = BackendProgram(
    "vLLM",
    Path(__file__).with_name("vllm_process.py"),
    "the checkpoint",
    "its messages are in the log of this worker; correct what they say, or leave engine out",
)
ENGINE = "engine: vllm"
NOT_WITH_GRAMMARS = ("min_new_tokens", "allowed_token_ids")
# Tokens of a block of vLLM's cache on CPUs.
BLOCK = 128
# An import of the worker's modules, or of the archive's, would take the place of vLLM's own.
DROPPED = {"PYTHONPATH", "PYTHONHOME"}
ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # A fork would keep the connection to the worker open after the end of the first process.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
HAS_VLLM = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"


class VllmModel(BackendModel):
    """A model that vLLM runs.

    Args:
        process: vLLM's process.
        limit: how many texts may run or wait for others to end.
        base: the checkpoint's generation config.
        has_grammars: whether vLLM can bind a text to a grammar.
        load_static: loads the model for forward passes and batches, which explanations need.
    """

    def __init__(
        self,
        process: BackendProcess,
        limit: int,
        base: GenerationConfig,
        has_grammars: bool,
        load_static: Callable[[], Model],
    ) -> None:
        super().__init__(process, limit, LazyLoad(load_static), has_gradients=True)
        self._base, self._has_grammars = _base_of(base), has_grammars
        self._ends = end_tokens(base)

    @property
    def generation(self) -> GenerationInfo:
        grammars = () if self._has_grammars else ("grammar", "tools")
        return GenerationInfo(PROGRAM.name, refused=sorted([*lacking_parameters(_does), *grammars]))

    def _settings(self, prompt: Prompt, number: int) -> dict[str, Any]:
        settings = sampling_settings(self._base, prompt.parameters, number)
        # vLLM would find no token at all where a grammar excludes the others.
        for name in NOT_WITH_GRAMMARS if prompt.grammar else ():
            if getattr(prompt.parameters, name):
                raise Unprocessable(
                    f"{name} cannot be done with response_format, grammar or tools by this model,"
                    f" which has {ENGINE}; leave one of them out."
                )
        if prompt.grammar:
            settings.pop("min_tokens", None)
        ends = prompt.parameters.ends(self._ends)
        # vLLM ends a text at the end token of its tokenizer, too, where it has one.
        ignores = {} if self._ends <= ends else {"ignore_eos": True}
        stops = {"max_tokens": prompt.new_tokens, "stop_token_ids": sorted(ends)}
        return {**settings, **ignores, **stops}

    def _constraints(self, grammar: TextGrammar) -> dict[str, Any]:
        followed = grammar.followed()
        if not self._has_grammars:
            raise Unprocessable(
                "response_format, grammar and tools cannot be done by this model with"
                f" {ENGINE}: the end token of its tokenizer ends no text; leave them out."
            )
        return {"grammar": followed.lark}

    def _failure(self, reason: str) -> RequestError:
        logger.error("vLLM failed at a text: %s", reason)
        return InternalError(RuntimeError())


def load_vllm(spec: ModelSpec, dtype: str, load_static: Callable[[], Model]) -> Model:
    """Start vLLM with a checkpoint.

    Args:
        spec: the checkpoint and the YAML.
        dtype: the dtype that it computes in.
        load_static: loads the model for forward passes and batches, which explanations need.

    Raises:
        WrongConfig: there is no vLLM, or its cache is too small for a text.
        WrongCheckpoint: vLLM does not load the checkpoint.
    """
    handler, base = spec.config.handler, spec.checkpoint.generation_config
    _base_of(base)
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
    limit = handler.max_num_seqs + handler.max_waiting
    return VllmModel(process, limit, base, _has_grammars(spec), load_static)


def engine_arguments(spec: ModelSpec, dtype: str) -> dict[str, Any]:
    """Return the values of vLLM's `AsyncEngineArgs`.

    Raises:
        WrongConfig: the cache is too small for a text.
    """
    is_quantized = quantization_method(spec.checkpoint.config)
    return {
        "model": str(spec.directory),
        # It is read for grammars alone.
        "skip_tokenizer_init": not _has_grammars(spec),
        "tokenizer_mode": "hf",
        "structured_outputs_config": {"backend": "guidance"},
        "trust_remote_code": False,
        "load_format": "safetensors",
        "use_tqdm_on_load": False,
        "dtype": "auto" if is_quantized else dtype,
        "generation_config": "vllm",
        "max_model_len": longest_text(spec),
        "max_num_seqs": spec.config.handler.max_num_seqs,
        "max_logprobs": MAX_TOP_TOKENS,
        "enable_prefix_caching": True,
        # Otherwise two workers would sample the same texts, and each one again after a restart.
        "seed": secrets.randbits(31),
        "disable_log_stats": True,
        **_cache_arguments(spec, getattr(torch, dtype).itemsize),
    }


def sampling_settings(
    base: Mapping[str, Any], parameters: GenerationParameters, number: int
) -> dict[str, Any]:
    """Return the values of vLLM's `SamplingParams` for a prompt.

    Args:
        base: the values of the checkpoint's generation config.
        parameters: those of the prompt.
        number: which of the prompt's sequences it is; with a seed, each has another.

    Raises:
        Unprocessable: vLLM cannot do what a parameter says.
    """
    given = given_settings(base, parameters)
    for name, value in given.items():
        spec = CHOOSING[name]
        if not _does(spec) and value not in (None, spec.neutral):
            raise Unprocessable(refusal(name, value, ENGINE))
    names = ((CHOOSING[name].vllm, value) for name, value in given.items())
    settings = {name: value for name, value in names if name}
    if not given.get("do_sample"):
        settings["temperature"] = 0.0
    if parameters.seed is not None and given.get("do_sample"):
        settings["seed"] = (parameters.seed + number) % MAX_SEED
    if parameters.records_tokens:
        settings["logprobs"] = parameters.top_n_tokens
    return settings


def _has_grammars(spec: ModelSpec) -> bool:
    """Return whether vLLM can bind texts to grammars: the tokenizer's end token must end them."""
    checkpoint = spec.checkpoint
    return checkpoint.tokenizer.eos_token_id in end_tokens(checkpoint.generation_config)


def _base_of(base: GenerationConfig) -> dict[str, Any]:
    return settings_of_checkpoint(base, _does, ENGINE)


def _does(spec: ParameterSpec) -> bool:
    return spec.vllm is not None


def _cache_arguments(spec: ModelSpec, size: int) -> dict[str, int]:
    """Return the size of the cache; none for an accelerator, most of whose memory vLLM takes."""
    handler = spec.config.handler
    if spec.device.type != "cpu" and handler.cache_size is None:
        return {}
    token = bytes_per_token(spec.checkpoint.config.get_text_config(), size)
    cache, text = cache_bytes(spec, size, BLOCK), longest_text(spec)
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
    """Check that an interpreter has vLLM."""
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
            "install vLLM in an environment of its own, and set handler.vllm_python to the Python"
            " executable of it",
        )


def _environment(device: torch.device) -> dict[str, str]:
    """Return the variables of vLLM's process."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    return {"VLLM_LOGGING_LEVEL": "WARNING", **kept, **ENVIRONMENT, **_visible(device)}


def _visible(device: torch.device) -> dict[str, str]:
    """Return the variable that shows vLLM the worker's GPU alone."""
    if device.type != "cuda":
        return {}
    index, names = device.index or 0, os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": names.split(",")[index] if names else str(index)}
