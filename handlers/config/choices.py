"""The values of `mode` and `save_mode`, and hints for unknown words."""

from __future__ import annotations

from difflib import get_close_matches

from handlers.config.quoting import enumerate_names
from handlers.registry import FORMATS, TASKS

# The time of a comparison grows with both words, and clients send words of any length.
MAX_WORD = 60
MAX_CHOICES = 200
# There are more modes than names of other kinds.
MAX_SHOWN = 35
# The `save_mode` that is another one, chosen when a model is packed.
AUTO = "auto"


def modes() -> list[str]:
    """Return the values of `mode`, one for each task."""
    return sorted(TASKS)


def save_modes() -> list[str]:
    """Return the values of `save_mode`, one for each format."""
    return sorted(FORMATS)


def suggest(word: str, choices: list[str]) -> str:
    """Return a hint for an unknown word: the closest choice, or the list of choices."""
    if closest := _closest(word, choices):
        return f"did you mean {closest!r}?"
    return f"use one of {enumerate_names(choices, limit=MAX_SHOWN)}"


def _closest(word: str, choices: list[str]) -> str | None:
    if len(word) > MAX_WORD:
        return None
    candidates = [choice for choice in choices[:MAX_CHOICES] if len(choice) <= MAX_WORD]
    return next(iter(get_close_matches(word, candidates, n=1)), None)
