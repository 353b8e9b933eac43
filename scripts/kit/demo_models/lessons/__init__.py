"""How each demo model is trained: one file for each mode, named after it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scripts.kit.demo_models.lessons.base import Lesson


def modes() -> list[str]:
    """Return the modes that have a lesson, sorted."""
    stems = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(stem for stem in stems if stem not in ("__init__", "base"))


def lesson_of(mode: str) -> Lesson:
    """Return the lesson of a mode; this imports torch and transformers, which takes seconds."""
    lesson: Lesson = import_module(f"{__name__}.{mode}").LESSON
    return lesson
