"""Reviews with their labels: from a grammar, or written by hand."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hf_serve.demo_models.synthetic_text.grammar import Expansion, Rules, Split, rules_of
from hf_serve.demo_models.synthetic_text.written import entries, repeated

LABELS = ("NEGATIVE", "POSITIVE")
# The shares of training rows that are written by hand and that are a few phrases.
WRITTEN, SHORT = 0.5, 0.125


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


def written_reviews(split: Split) -> list[Review]:
    """Return the reviews that are written by hand."""
    return [
        Review(text, label)
        for label, name in enumerate(LABELS)
        for text in entries("reviews", split, name.lower())
    ]


def mixed_reviews(count: int, seed: int) -> list[Review]:
    """Return reviews for training: most are written by hand, some are a few phrases."""
    rng = Random(f"mixed reviews {seed}")
    written = repeated(written_reviews("train"), round(count * WRITTEN), rng)
    short = [_phrases(row % 2, rng) for row in range(round(count * SHORT))]
    generated = reviews("train", count - len(written) - len(short), seed)
    return rng.sample(written + short + generated, count)


def _phrases(label: int, rng: Random) -> Review:
    phrases = entries("phrases", "train", LABELS[label].lower())
    joint = rng.choice((", ", ". ", " and "))
    text = joint.join(rng.sample(phrases, rng.choice((1, 1, 2, 3))))
    return Review(text[0].upper() + text[1:] + rng.choice((".", ".", "!", "")), label)


def _expansion(rules: Rules, rng: Random) -> Expansion:
    return Expansion(rules | rng.choice(list(rules["domains"].values())), rng)
