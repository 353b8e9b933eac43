"""Texts that are written by hand, in YAML: those in `texts/held_out/` are never trained on.

A tenth of those for training is kept for validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import yaml

from hf_serve.demo_models.synthetic_text.grammar import Split

Item = TypeVar("Item")

_TEXTS = Path(__file__).parent / "texts"
# One entry in this many is kept for validation.
_VALIDATION = 10


def entries(name: str, split: Split, key: str = "") -> list[Any]:
    """Return the entries of `<name>.yaml` for a split; with `key`, those under a key of it."""
    held_out = split == "held_out"
    document = _read(_TEXTS / ("held_out" if held_out else "") / f"{name}.yaml")
    listed: list[Any] = document[key] if key else document
    if held_out:
        return listed
    return [
        entry
        for number, entry in enumerate(listed)
        if (number % _VALIDATION == 0) == (split == "validation")
    ]


def repeated(items: Sequence[Item], count: int, rng: Random) -> list[Item]:
    """Return a number of items in random order, each as often as the others."""
    drawn: list[Item] = []
    while len(drawn) < count:
        drawn += rng.sample(items, min(len(items), count - len(drawn)))
    return drawn


@cache
def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
