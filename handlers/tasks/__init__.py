"""Tasks of models: one file for each `mode`, with one class `Task`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.custom_file import find
from ..config.handler_section import HandlerSection
from ..registry import TASKS

if TYPE_CHECKING:
    from .base import BaseTask


def get(mode: str) -> type[BaseTask[Any, Any]]:
    """Return the `Task` of a mode, which `handlers/tasks/<mode>.py` or an entry point has."""
    task: type[BaseTask[Any, Any]] = TASKS.load(mode)
    return task


def load(directory: Path, settings: HandlerSection) -> BaseTask[Any, Any]:
    """Return the task of the checkpoint in a folder.

    Raises:
        ConfigError: the mode does not serve this checkpoint, or its files are wrong.
    """
    kind = get(settings.mode)
    checkpoint = kind.read_checkpoint(directory, settings)
    kind = kind.for_checkpoint(checkpoint)
    if settings.custom:
        kind = _with_custom_code(kind, directory, settings.custom)
    checkpoint.check(kind.auto_class_for(checkpoint.config))
    return kind(checkpoint, settings)


def _with_custom_code(
    kind: type[BaseTask[Any, Any]], directory: Path, custom: str
) -> type[BaseTask[Any, Any]]:
    # This import loads torch, which the other functions here do not.
    from .custom_code import CustomCode  # noqa: PLC0415

    return CustomCode.load(find(directory, custom)).around(kind)
