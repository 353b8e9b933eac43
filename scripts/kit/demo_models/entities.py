"""Sentences with the names in them marked."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from scripts.kit.demo_models.grammar import Expansion, Span, Split, read_marks, rules_of

LABELS = ("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")


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
    texts = (read_marks(Expansion(rules, rng).expand("{sentence}")) for _ in range(count))
    return [Tagged(text, [_without_article(text, span) for span in spans]) for text, spans in texts]


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


def _without_article(text: str, span: Span) -> Span:
    article = text[span.start : span.end].lower().startswith("the ")
    return span._replace(start=span.start + len("the ")) if article else span
