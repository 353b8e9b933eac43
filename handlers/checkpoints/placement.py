"""Where a checkpoint's weights go: one device, several, or this process's part of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from handlers.checkpoints import tensor_parallel
from handlers.checkpoints.device_map import check_embeddings, describe_placement, spread
from handlers.config.model_config import ModelConfig
from handlers.runtime import ranks

logger = logging.getLogger(__name__)


def placement(
    config: ModelConfig, checkpoint: PreTrainedConfig, directory: Path, device: torch.device
) -> dict[str, Any]:
    """Return what `from_pretrained` must be told of places.

    Raises:
        WrongConfig: the YAML asks for places that there are not, or that the model cannot have.
    """
    if config.torchrun:
        tensor_parallel.check_can_split(checkpoint, config.torchrun.processes)
        if tensor_parallel.is_sharded():
            return tensor_parallel.part()
    if config.handler.uses_device_map:
        return spread(config.handler, directory)
    return {"device_map": {"": device}}


def log_placement(config: ModelConfig, module: PreTrainedModel) -> None:
    """Write into the log which part of a model is where, if it is not all in one place.

    Raises:
        WrongConfig: a part is where it cannot be used.
    """
    if config.torchrun and tensor_parallel.is_sharded():
        logger.info(
            "Model is split: this is one part of %d, on %s", ranks.world_size(), module.device
        )
    elif config.handler.uses_device_map:
        check_embeddings(module)
        logger.info("Layers are spread: %s", describe_placement(module))


def compute_device(config: ModelConfig, device: torch.device) -> torch.device:
    """Return which device computes; under torchrun transformers picks each process's own."""
    return tensor_parallel.device() if config.torchrun and tensor_parallel.is_sharded() else device
