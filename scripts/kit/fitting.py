"""Whether a checkpoint fits its YAML, seen from its small files alone. Imports torch."""

from __future__ import annotations

from pathlib import Path

from handlers.checkpoint import read_checkpoint
from handlers.heads import check_head
from handlers.registry import task_class
from handlers.sections import Handler


def check_fits(handler: Handler, folder: Path) -> None:
    """Read config and tokenizer, and compare the head and the labels with what the mode needs.

    Raises:
        WrongCheckpoint: when something is missing, needs code of its own or does not fit.
    """
    config = read_checkpoint(folder, handler).config
    check_head(config, handler, task_class(handler.mode).auto_class)
