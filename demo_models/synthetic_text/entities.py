"""Sentences with the names in them marked: from a grammar, or written by hand."""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

from hf_serve.demo_models.synthetic_text.grammar import (
    MARK,
    Expansion,
    Span,
    Split,
    read_marks,
    rules_of,
)
from hf_serve.demo_models.synthetic_text.written import entries, repeated

LABELS = ("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
# The share of names of these kinds that are exchanged for others.
RENAMED, RENAMING = ("PER", "ORG", "LOC"), 0.4


class Tagged(NamedTuple):
    """A text and the spans of its names, in order; a span's label is PER, ORG, LOC or MISC."""

    text: str
    spans: list[Span]

    def labels(self, offsets: list[tuple[int, int]]) -> list[int]:
        """Return the index in `LABELS` of each token, given the tokens' character offsets."""
        return [LABELS.index(self._label(start)) for start, _ in offsets]

    def _label(self, start: int) -> str:
        for span in self.spans:
            if span.start <= start < span.end:
                return ("B-" if start == span.start else "I-") + span.label
        return "O"


def sentences(split: Split, count: int, seed: int) -> list[Tagged]:
    """Write texts of one or two sentences; some have no name."""
    rules, rng = rules_of("entities", split), Random(f"entities {split} {seed}")
    return [_tagged(Expansion(rules, rng).expand("{sentence}")) for _ in range(count)]


def written_sentences(split: Split) -> list[Tagged]:
    """Return the sentences that are written by hand."""
    return [_tagged(marked) for marked in entries("sentences", split)]


def mixed_sentences(count: int, seed: int) -> list[Tagged]:
    """Return sentences for training; half are written by hand, often with names of others."""
    rng = Random(f"mixed sentences {seed}")
    marked = entries("sentences", "train")
    names = _names(marked)
    written = [_tagged(_renamed(each, names, rng)) for each in repeated(marked, count // 2, rng)]
    return rng.sample(written + sentences("train", count - len(written), seed), count)


def spans_of(labels: list[str], offsets: list[tuple[int, int]]) -> list[Span]:
    """Join the labels of adjacent tokens to spans; an I- without a B- starts a new span."""
    spans: list[Span] = []
    previous = "O"
    for label, (start, end) in zip(labels, offsets, strict=True):
        if label.startswith("I-") and previous[2:] == label[2:]:
            spans[-1] = spans[-1]._replace(end=end)
        elif label != "O":
            spans.append(Span(label[2:], start, end))
        previous = label
    return spans


def _tagged(marked: str) -> Tagged:
    text, spans = read_marks(marked)
    return Tagged(text, [_without_article(text, span) for span in spans])


def _names(marked: list[str]) -> dict[str, list[str]]:
    """The names of each kind in the texts."""
    names: dict[str, list[str]] = {}
    for kind, name in (found.groups() for text in marked for found in MARK.finditer(text)):
        names.setdefault(kind, []).append(name)
    return names


def _renamed(marked: str, names: dict[str, list[str]], rng: Random) -> str:
    """The text with another name of the same kind for some of the people, firms and places."""

    def other(found: re.Match[str]) -> str:
        kind, name = found.groups()
        changes = kind in RENAMED and rng.random() < RENAMING
        return f"[{kind} {rng.choice(names[kind]) if changes else name}]"

    return MARK.sub(other, marked)


def _without_article(text: str, span: Span) -> Span:
    article = text[span.start : span.end].lower().startswith("the ")
    return span._replace(start=span.start + len("the ")) if article else span
