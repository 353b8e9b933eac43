"""Tasks of models: one file for each `mode`, with one class `Task`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handlers.tasks.base import BaseTask


def get(mode: str) -> type[BaseTask[Any, Any]]:
    """Return the `Task` of `handlers/tasks/<mode>.py`."""
    task: type[BaseTask[Any, Any]] = import_module(f"handlers.tasks.{mode}").Task
    return task
