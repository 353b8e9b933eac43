"""How each demo model is trained: one file for each mode, named after it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hf_serve.demo_models.trainers.base import Trainer


def modes() -> list[str]:
    """Return the modes that have a trainer, sorted."""
    stems = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(stem for stem in stems if stem not in ("__init__", "base"))


def trainer_of(mode: str) -> Trainer:
    """Return the trainer of a mode; this imports torch and transformers, which takes seconds."""
    trainer: Trainer = import_module(f"{__name__}.{mode}").TRAINER
    return trainer
