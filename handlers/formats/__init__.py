"""Storage and execution formats: `<save_mode>.py` has one class `Format`."""

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
    instance: BaseFormat = import_module(f"handlers.formats.{save_mode}").Format()
    return instance


def check_config(config: ModelConfig) -> None:
    """Check that the mode, the format and the keys of a YAML are compatible.

    Raises:
        WrongConfig: they are not; the message names supported values.
    """
    handler = config.handler
    particular = (
        handler.quantization or handler.responses or handler.adapters or config.continuousBatching
    )
    if not (handler.is_exported or particular):
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
    """Export the checkpoint in a directory to the format of its YAML.

    A checkpoint that is served as it is is only measured, in the dtype of the YAML.

    Args:
        directory: the checkpoint.
        config: the YAML.
        target: the output directory.
        samples: representative requests for calibration and evaluation.

    Returns:
        The agreement with the checkpoint in float32; None if no precision is lost.

    Raises:
        ConfigError: the checkpoint is invalid or cannot be exported, or the agreement is too low.
    """
    # This import loads torch and transformers, which check_config does not need.
    from handlers.export.exporter import export_checkpoint, measure_checkpoint  # noqa: PLC0415

    check_config(config)
    load = get(CHECKPOINT).load
    if not config.handler.is_exported:
        return measure_checkpoint(load, directory, config, target, samples)
    return export_checkpoint(
        get(config.handler.save_mode), load, directory, config, target, samples
    )
