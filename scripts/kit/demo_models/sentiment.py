"""Reviews with their labels."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from scripts.kit.demo_models.grammar import Expansion, Rules, Split, rules_of

LABELS = ("NEGATIVE", "POSITIVE")


class Review(NamedTuple):
    """A text and the index of its label in `LABELS`."""

    text: str
    label: int


def reviews(split: Split, count: int, seed: int) -> list[Review]:
    """Write reviews, half of them positive; each is about one thing."""
    rules, rng = rules_of("sentiment", split), Random(f"sentiment {split} {seed}")
    return [
        Review(_expansion(rules, rng).expand(f"{{{LABELS[row % 2].lower()}}}"), row % 2)
        for row in range(count)
    ]


def _expansion(rules: Rules, rng: Random) -> Expansion:
    return Expansion(rules | rng.choice(list(rules["domains"].values())), rng)
