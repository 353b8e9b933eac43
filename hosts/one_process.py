"""What of a model's YAML needs TorchServe."""

from __future__ import annotations

from pathlib import Path

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig


def require_one_process(config: ModelConfig, archive: Path) -> None:
    """Check that a model runs in one process.

    Raises:
        WrongConfig: TorchServe has to start its processes.
    """
    if config.torchrun:
        raise WrongConfig(
            str(archive),
            "has parallelType: tp, whose processes are started by TorchServe",
            "serve it with TorchServe, or pack it without parallelType and torchrun",
        )
