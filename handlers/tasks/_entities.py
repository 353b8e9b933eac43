"""Scored tokens to labelled words and entities, as the token-classification pipeline joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Strategy = Literal["none", "simple", "first", "average", "max"]
Scores = npt.NDArray[np.float64]
ToText = Callable[[list[str]], str]


@dataclass(frozen=True)
class Token:
    """A token with the probability of each class; `continues` marks the inside of a word.

    `best` is the number of the likeliest class.
    """

    text: str
    scores: Scores
    best: int
    index: int
    start: int
    end: int
    continues: bool


@dataclass(frozen=True)
class LabelledSpan:
    """A token or word with the one label that it got."""

    text: str
    label: str
    score: float
    start: int
    end: int

    @property
    def kind(self) -> str:
        """The label without its B- or I-."""
        return self.label[2:] if self.label.startswith(("B-", "I-")) else self.label


def label_tokens(tokens: Iterable[Token], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return each token with its best label: strategy `none`."""
    return [
        {
            "entity": labels[token.best],
            "score": float(token.scores[token.best]),
            "index": token.index,
            "word": token.text,
            "start": token.start,
            "end": token.end,
        }
        for token in tokens
    ]


def join_entities(
    tokens: Sequence[Token], labels: Sequence[str], strategy: Strategy, to_text: ToText
) -> list[dict[str, Any]]:
    """Return runs of one label as entities; `simple` joins tokens, the others whole words."""
    units = [[token] for token in tokens] if strategy == "simple" else _words(tokens)
    spans = [_labelled_span(unit, labels, strategy, to_text) for unit in units]
    return [_entity(run, to_text) for run in _runs(spans)]


def without_overlaps(entities: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the longest of entities that overlap in two windows, of equal ones the best."""
    kept: list[dict[str, Any]] = []
    for entity in sorted(entities, key=lambda entity: entity["start"]):
        if not kept or entity["start"] >= kept[-1]["end"]:
            kept.append(entity)
        elif _size(entity) > _size(kept[-1]):
            kept[-1] = entity
    return kept


def _size(entity: dict[str, Any]) -> tuple[int, float]:
    return entity["end"] - entity["start"], entity["score"]


def _words(tokens: Sequence[Token]) -> list[list[Token]]:
    words: list[list[Token]] = []
    for token in tokens:
        if token.continues and words:
            words[-1].append(token)
        else:
            words.append([token])
    return words


def _labelled_span(
    unit: list[Token], labels: Sequence[str], strategy: Strategy, to_text: ToText
) -> LabelledSpan:
    scores = _word_scores(unit, strategy)
    best = int(scores.argmax())
    texts = [token.text for token in unit]
    text = texts[0] if strategy == "simple" else to_text(texts)
    return LabelledSpan(text, labels[best], float(scores[best]), unit[0].start, unit[-1].end)


def _word_scores(unit: list[Token], strategy: Strategy) -> Scores:
    if strategy == "average":
        return np.asarray(np.mean([token.scores for token in unit], axis=0))
    if strategy == "max":
        return max((token.scores for token in unit), key=lambda scores: scores.max())
    return unit[0].scores


def _runs(spans: Sequence[LabelledSpan]) -> list[list[LabelledSpan]]:
    runs = [[span] for span in spans[:1]]
    for before, span in pairwise(spans):
        if span.kind == before.kind and not span.label.startswith("B-"):
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


def _entity(run: list[LabelledSpan], to_text: ToText) -> dict[str, Any]:
    return {
        "entity_group": run[0].label.split("-", 1)[-1],
        "score": float(np.mean([span.score for span in run])),
        "word": to_text([span.text for span in run]),
        "start": run[0].start,
        "end": run[-1].end,
    }
