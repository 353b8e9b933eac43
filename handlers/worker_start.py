"""The start of a process that serves an archive: a worker of TorchServe, or of another host."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

from . import registry
from .checkpoints.archive_signature import verify
from .checkpoints.trial_results import installed_packages
from .compat.transformers import read_conversions
from .config.model_config import CONFIG_FILE, ModelConfig
from .engine import BaseEngine, Engine
from .errors import ConfigError
from .inference_code import InferenceCodeEngine, has_inference_code
from .process.packages import silence_libraries
from .process.resources import limit_memory_growth, share_heap_between_threads


def prepare_process() -> None:
    """Limit the memory and the logs of this process, before the first operation of torch."""
    limit_memory_growth()
    silence_libraries()


def warm_caches() -> None:
    """Read what each load reads once in a process, so that forks of this process have it."""
    read_conversions()
    installed_packages()
    for each in vars(registry).values():
        # The load of a model says what is wrong with an entry point.
        with suppress(ConfigError):
            if isinstance(each, registry.Registry):
                _ = each.added


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
