"""Add the keys of TorchServe that a YAML leaves out, by mode, format and machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hf_serve.handlers import formats
from hf_serve.handlers.config.custom_file import defines_inference_code, find
from hf_serve.handlers.config.handler_section import CHECKPOINT, CUSTOM_MODE
from hf_serve.handlers.config.model_config import (
    ModelConfig,
    ServingDefaults,
    TorchServeSection,
    serving_defaults,
)
from hf_serve.handlers.errors import WrongConfig

# Each worker has a copy of the weights, so larger models get one.
MAX_BYTES_OF_SEVERAL_WORKERS = 2**30
# With `continuousBatching`, TorchServe passes at least this many requests to the worker.
MIN_CONTINUOUS_BATCH = 256
# Weights beyond this size make a load longer than TorchServe's default of 120 s may allow.
BYTES_OF_USUAL_LOADS = 2 * 2**30
BYTES_A_SECOND = 50 * 2**20
SECONDS_OF_COMPILATION = 480

Values = Mapping[str, Any]


def missing_keys(config: ModelConfig, checkpoint: Path) -> dict[str, Any]:
    """Return the keys of TorchServe that a YAML leaves out, with their values on this machine.

    Args:
        config: the YAML.
        checkpoint: the folder of the model, whose weights are as large as the packed ones at most.
    """
    size = sum(path.stat().st_size for path in checkpoint.rglob("*.safetensors"))
    wanted = _wanted(config, _defaults(config, checkpoint), size)
    given = config.model_fields_set
    if given & {"minWorkers", "maxWorkers"}:
        wanted = {key: each for key, each in wanted.items() if not key.endswith("Workers")}
    return {key: value for key, value in wanted.items() if key not in given}


def with_keys(config: ModelConfig, keys: Values) -> ModelConfig:
    """Return a copy of a YAML's config with other values of TorchServe's keys, checked again.

    Raises:
        WrongConfig: the values exclude each other.
    """
    document = config.model_dump(by_alias=True, exclude_unset=True)
    return ModelConfig.parse({**document, **keys}, config.source)


def with_lines(text: str, keys: Values) -> str:
    """Return the text of a YAML with keys before its own, and its comments as they are."""
    if not keys:
        return text
    document = yaml.safe_load(text)
    lines = "# Added when the model was packed, for its mode and the machine.\n"
    lines += yaml.safe_dump(dict(keys), sort_keys=False)
    whole = f"{lines}\n{text}"
    try:
        if yaml.safe_load(whole) == {**keys, **document}:
            return whole
    except yaml.YAMLError:
        pass
    # A YAML in one pair of braces, or after a separate line.
    return lines + "\n" + yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def describe_keys(keys: Values) -> str:
    """Return the added keys in one line."""
    values = ", ".join(f"{key}: {str(value).lower()}" for key, value in keys.items())
    return f"packed with the defaults of keys that the YAML leaves out: {values}"


def _wanted(config: ModelConfig, defaults: ServingDefaults, size: int) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    workers = _workers(config, defaults, size)
    wanted |= {"minWorkers": workers, "maxWorkers": workers}
    if defaults.continuous_batching and _may_be_continuous(config):
        wanted["continuousBatching"] = True
    continuous = config.continuousBatching or wanted.get("continuousBatching", False)
    wanted["batchSize"] = _continuous_batch(config) if continuous else defaults.batch_size
    wanted["maxBatchDelay"] = defaults.max_batch_delay
    if defaults.response_timeout and _may_respond_within(config, defaults.response_timeout):
        wanted["responseTimeout"] = defaults.response_timeout
    seconds = _startup_seconds(config, size)
    if seconds > TorchServeSection().startupTimeout:
        wanted["startupTimeout"] = seconds
    return wanted


def _defaults(config: ModelConfig, checkpoint: Path) -> ServingDefaults:
    """Return the values of a mode; a model's own inference code answers requests one by one."""
    custom = config.handler.custom
    if custom and defines_inference_code(find(checkpoint, custom)):
        return serving_defaults(CUSTOM_MODE)
    return serving_defaults(config.handler.mode)


def _workers(config: ModelConfig, defaults: ServingDefaults, size: int) -> int:
    """Return the number of workers: one, where a model has several devices or runs continuously."""
    several = not (config.torchrun or config.parallelType or config.continuousBatching)
    if defaults.workers_of_exports == 1 or not several or size > MAX_BYTES_OF_SEVERAL_WORKERS:
        return 1
    if formats.plan(config).handler.save_mode == CHECKPOINT:
        return 1
    # This import loads torch, which a checkpoint is packed without.
    from hf_serve.handlers.checkpoints.placement import serving_device_type  # noqa: PLC0415

    if serving_device_type(config.deviceType) != "cpu":
        return 1
    return min(defaults.workers_of_exports, os.cpu_count() or 1)


def _may_be_continuous(config: ModelConfig) -> bool:
    """Return whether the other keys of a YAML allow `continuousBatching`."""
    if config.continuousBatching is not None or max(config.minWorkers, config.maxWorkers) > 1:
        return False
    try:
        formats.check_config(with_keys(config, {"continuousBatching": True}))
    except WrongConfig:
        return False
    return True


def _continuous_batch(config: ModelConfig) -> int:
    """Return a `batchSize` with which the worker itself refuses what it has no room for."""
    most = config.handler.max_num_seqs + config.handler.max_waiting
    return max(MIN_CONTINUOUS_BATCH, most + 1)


def _may_respond_within(config: ModelConfig, seconds: int) -> bool:
    try:
        with_keys(config, {"responseTimeout": seconds})
    except WrongConfig:
        return False
    return True


def _startup_seconds(config: ModelConfig, size: int) -> int:
    """Return how long the load of a worker may take."""
    usual = TorchServeSection().startupTimeout
    compiles = config.pt2.compile.enable or config.handler.engine == "vllm"
    reading = max(0, size - BYTES_OF_USUAL_LOADS) // BYTES_A_SECOND
    return usual + reading + (SECONDS_OF_COMPILATION if compiles else 0)
