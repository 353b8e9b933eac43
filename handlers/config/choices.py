"""The values of `mode`, `save_mode` and `method`, which are module names."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

HANDLERS = Path(__file__).parents[1]


def module_names(package: str) -> list[str]:
    """Return the sorted module names of a package, without `base` and private modules.

    Args:
        package: a path below `handlers/`, such as `tasks`.
    """
    stems = (path.stem for path in (HANDLERS / package).glob("*.py"))
    return sorted(stem for stem in stems if stem != "base" and not stem.startswith("_"))


def modes() -> list[str]:
    """Return the values of `mode`, one for each task."""
    return module_names("tasks")


def save_modes() -> list[str]:
    """Return the values of `save_mode`, one for each format."""
    return module_names("formats")


def suggest(word: str, choices: list[str]) -> str:
    """Return a hint for an unknown word: the closest choice, or the list of choices."""
    matches = get_close_matches(word, choices, n=1)
    return f"did you mean {matches[0]!r}?" if matches else f"use one of {', '.join(choices)}"
