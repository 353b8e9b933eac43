"""Check from the config and tokenizer files whether a checkpoint fits its YAML. Imports torch."""

from __future__ import annotations

from pathlib import Path

from handlers import tasks
from handlers.config.handler_section import HandlerSection


def check_compatible(handler: HandlerSection, folder: Path) -> None:
    """Check the config, tokenizer, head and labels of a checkpoint against its mode.

    Raises:
        WrongCheckpoint: a file is missing, requires custom code or does not fit.
    """
    task = tasks.get(handler.mode)
    checkpoint = task.checkpoint_class.read(folder, handler)
    task = task.for_config(checkpoint.config)
    checkpoint.check(task.auto_class_for(checkpoint.config))
