"""Whether a checkpoint fits its YAML, seen from its small files alone. Imports torch."""

from __future__ import annotations

from pathlib import Path

from handlers import tasks
from handlers.checkpoints.checkpoint import read_checkpoint
from handlers.checkpoints.heads import check_head
from handlers.config.handler_section import HandlerSection


def check_compatible(handler: HandlerSection, folder: Path) -> None:
    """Read config and tokenizer, and compare the head and the labels with what the mode needs.

    Raises:
        WrongCheckpoint: when something is missing, needs code of its own or does not fit.
    """
    config = read_checkpoint(folder, handler).config
    check_head(config, handler, tasks.get(handler.mode).auto_class)
