"""The start of a process that serves an archive: a worker of TorchServe, or of another host."""

from __future__ import annotations

from pathlib import Path

import torch

from .checkpoints.integrity import verify
from .config.model_config import CONFIG_FILE, ModelConfig
from .engine import BaseEngine, Engine
from .inference_code.engine import InferenceCodeEngine, has_inference_code
from .process.packages import silence_libraries
from .process.resources import limit_memory_growth, share_heap_between_threads


def prepare_process() -> None:
    """Limit the memory and the logs of this process, before the first operation of torch."""
    limit_memory_growth()
    silence_libraries()


def load_engine(
    folder: Path, config: ModelConfig | None = None, device: torch.device | str = "cpu"
) -> BaseEngine:
    """Check the sums of an archive, load its model, and predict the sample of its mode.

    Args:
        config: its YAML; by default it is read from the folder.

    Raises:
        ConfigError: the archive, its YAML or its checkpoint is invalid.
    """
    config = config or ModelConfig.read(folder / CONFIG_FILE)
    if config.continuousBatching:
        # Each request has a thread. Those that verify files would leave them heaps.
        share_heap_between_threads()
    sums = verify(folder)
    kind = InferenceCodeEngine if has_inference_code(folder, config) else Engine
    engine: BaseEngine = kind.load(folder, config, device, sums)
    engine.require_health()
    return engine
