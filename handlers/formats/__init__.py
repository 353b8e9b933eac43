"""How weights are stored and run: one file for each `save_mode`, with one class `Format`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from handlers import tasks
from handlers.config.handler_section import CHECKPOINT
from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig
from handlers.schemas.request import Request

if TYPE_CHECKING:
    from handlers.export.parity_report import ParityReport
    from handlers.formats.base import BaseFormat


def get(save_mode: str) -> BaseFormat:
    """Return the format of `handlers/formats/<save_mode>.py`."""
    found: BaseFormat = import_module(f"handlers.formats.{save_mode}").Format()
    return found


def check_config(config: ModelConfig) -> None:
    """Check that the mode, the format and their keys in a YAML go together.

    Raises:
        WrongConfig: they do not; the text names what does.
    """
    handler = config.handler
    if not (handler.is_exported or handler.quantization or handler.responses):
        return  # A checkpoint as it is goes with every task and key: no need to import either.
    task = tasks.get(handler.mode)
    get(handler.save_mode).check(config, task)
    if handler.responses and task.legacy_response is None:
        raise WrongConfig(
            config.source,
            f"handler has responses: legacy and mode: {handler.mode}, which the old example had"
            " not",
            "leave responses out",
        )


def export(
    directory: Path, config: ModelConfig, target: Path, samples: Sequence[Request] = ()
) -> ParityReport | None:
    """Write the checkpoint in a folder to another folder, in the format of its YAML.

    Args:
        directory: the checkpoint.
        config: the YAML.
        target: the folder of the exported model.
        samples: requests like those that the model will get, for calibration and comparison.

    Returns:
        How well the exported model agrees with the checkpoint, where that was measured.

    Raises:
        ConfigError: the checkpoint is wrong or cannot be exported, or agrees too little.
    """
    # Imports torch and transformers, which checking a YAML does without.
    from handlers.export.exporter import export_checkpoint  # noqa: PLC0415

    check_config(config)
    reference = get(CHECKPOINT)
    return export_checkpoint(
        get(config.handler.save_mode), reference.load, directory, config, target, samples
    )
