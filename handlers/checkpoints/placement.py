"""Device placement of the weights: one device, several devices, or tensor parallel."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from handlers.checkpoints import tensor_parallel
from handlers.checkpoints.device_map import (
    check_embeddings,
    describe_placement,
    device_map_arguments,
)
from handlers.config.model_config import ModelConfig
from handlers.process import ranks

logger = logging.getLogger(__name__)


def placement_arguments(
    config: ModelConfig, checkpoint: PreTrainedConfig, directory: Path, device: torch.device
) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that place the weights.

    Args:
        config: the YAML.
        checkpoint: the config of the checkpoint.
        directory: the checkpoint.
        device: the device of a model that is on a single one.

    Raises:
        WrongConfig: a device is not available, or the model cannot be distributed.
    """
    if config.torchrun:
        tensor_parallel.check_tensor_parallel(checkpoint, config.torchrun.processes)
        if tensor_parallel.is_sharded():
            return tensor_parallel.tensor_parallel_arguments()
    if config.handler.uses_device_map:
        return device_map_arguments(config.handler, directory)
    return {"device_map": {"": device}}


def log_placement(config: ModelConfig, module: PreTrainedModel) -> None:
    """Log the placement of a model that is distributed.

    Raises:
        WrongConfig: the embeddings are on disk.
    """
    if config.torchrun and tensor_parallel.is_sharded():
        logger.info(
            "Model is split: this is one part of %d, on %s", ranks.world_size(), module.device
        )
    elif config.handler.uses_device_map:
        check_embeddings(module)
        logger.info("Layers are spread: %s", describe_placement(module))


def compute_device(config: ModelConfig, device: torch.device) -> torch.device:
    """Return the device that computes; under torchrun transformers selects one per process."""
    return tensor_parallel.device() if config.torchrun and tensor_parallel.is_sharded() else device
