"""A checkpoint into another format, as its YAML says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from handlers.checkpoint import read_checkpoint
from handlers.config import ModelConfig
from handlers.formats.base import Wanted
from handlers.registry import format_module, task_class


def is_exported(config: ModelConfig) -> bool:
    """Tell whether a YAML's format is made from a checkpoint, or is the checkpoint itself."""
    return hasattr(format_module(config.handler.save_mode), "export")


def export(directory: Path, config: ModelConfig, target: Path) -> None:
    """Write the checkpoint in a folder into another folder, in the format of the YAML.

    Raises:
        ConfigError: when the checkpoint is wrong or cannot be exported.
    """
    task = task_class(config.handler.mode)
    checkpoint = read_checkpoint(directory, config.handler)
    module: Any = format_module(config.handler.save_mode)
    wanted = Wanted(directory, task.auto_class, task.outputs, config, torch.device("cpu"))
    module.export(wanted, target, tuple(checkpoint.tokenizer.model_input_names))
