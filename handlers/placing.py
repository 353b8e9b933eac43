"""Where a checkpoint's weights go: one device, several, or this process's part of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from handlers import ranks, splitting
from handlers.config import ModelConfig
from handlers.spreading import check_embeddings, spread, where_layers_are

logger = logging.getLogger(__name__)


def placement(
    config: ModelConfig, checkpoint: PreTrainedConfig, directory: Path, device: torch.device
) -> dict[str, Any]:
    """Return what `from_pretrained` must be told of places.

    Raises:
        WrongConfig: the YAML asks for places that there are not, or that the model cannot have.
    """
    if config.torchrun:
        splitting.check_can_split(checkpoint, config.torchrun.processes)
        if splitting.shares():
            return splitting.part()
    if config.handler.spreads:
        return spread(config.handler, directory)
    return {"device_map": {"": device}}


def tell(config: ModelConfig, module: PreTrainedModel) -> None:
    """Write into the log which part of a model is where, if it is not all in one place.

    Raises:
        WrongConfig: a part is where it cannot be used.
    """
    if config.torchrun and splitting.shares():
        logger.info("Model is split: this is one part of %d, on %s", ranks.count(), module.device)
    elif config.handler.spreads:
        check_embeddings(module)
        logger.info("Layers are spread: %s", where_layers_are(module))


def computing(config: ModelConfig, device: torch.device) -> torch.device:
    """Return which device computes; under torchrun transformers picks each process's own."""
    return splitting.device() if config.torchrun and splitting.shares() else device
