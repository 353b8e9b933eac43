"""The words that a YAML may use: a word is the name of a file in a family's folder."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

HANDLERS = Path(__file__).parents[1]


def files_of(family: str) -> list[str]:
    """Return the names in a family's folder, sorted; `base` and private files are not words."""
    stems = (path.stem for path in (HANDLERS / family).glob("*.py"))
    return sorted(stem for stem in stems if stem != "base" and not stem.startswith("_"))


def modes() -> list[str]:
    """Return every `mode` that there is a task for."""
    return files_of("tasks")


def save_modes() -> list[str]:
    """Return every `save_mode` that there is a format for."""
    return files_of("formats")


def nearest(word: str, words: list[str]) -> str:
    """Say which known word was probably meant, or list them all."""
    close = get_close_matches(word, words, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(words)}"
