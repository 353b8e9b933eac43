"""Tasks of models: one file for each `mode`, with one class `Task`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers.registry import TASKS

if TYPE_CHECKING:
    from handlers.tasks.base import BaseTask


def get(mode: str) -> type[BaseTask[Any, Any]]:
    """Return the `Task` of a mode, by default that of `handlers/tasks/<mode>.py`."""
    task: type[BaseTask[Any, Any]] = TASKS.load(mode)
    return task
