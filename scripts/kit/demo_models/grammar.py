"""Grammars: rules in YAML from which the training texts are generated.

In a rule, `{word}` stands for any rule of `word`, drawn each time; `<word>` is drawn once for an
expansion and stays the same; `(a|b)` is a choice; `[PER Anna Berg]` marks a span.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import yaml

Split = Literal["train", "held_out"]
Rules = dict[str, Any]

_GRAMMARS = Path(__file__).parent / "grammars"
_REFERENCE = re.compile(r"\{(\w+)\}|<(\w+)>")
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_ARTICLE = re.compile(r"\b([Aa])(?= (?:\[\w+ )?(?!uni|use|eu|one)[aeiou])", re.IGNORECASE)
_MARK = re.compile(r"\[(\w+) ([^\[\]]*)\]")
_SENTENCE = re.compile(r"((?:^|[.!?] )(?:\[\w+ )?)([a-z])")


class Span(NamedTuple):
    """A labelled span of a text: characters `start` up to, not including, `end`."""

    label: str
    start: int
    end: int


@cache
def rules_of(grammar: str, split: Split) -> Rules:
    """Return the rules of `grammars/<grammar>.yaml` for a split, the shared names included."""
    return _read("names")[split] | _read(grammar).get("shared", {}) | _read(grammar)[split]


class Expansion:
    """Texts from one grammar, in which `<word>` always has the value that is drawn first."""

    def __init__(self, rules: Rules, rng: Random) -> None:
        self._rules, self._rng = rules, rng
        self._kept: dict[str, str] = {}

    def expand(self, text: str, *, marked: bool = False) -> str:
        """Expand a text; with `marked`, the value of `<word>` is written as `[word value]`."""
        expanded = self._expand(text, marked)
        articled = _ARTICLE.sub(r"\1n", re.sub(r" {2,}", " ", expanded))
        return _SENTENCE.sub(lambda found: found[1] + found[2].upper(), articled)

    @property
    def values(self) -> set[str]:
        """The values drawn for `<word>`s so far."""
        return set(self._kept.values())

    def _expand(self, text: str, marked: bool = False) -> str:
        while (chosen := _CHOICE.sub(self._choose, text)) != text:
            text = chosen
        return _REFERENCE.sub(lambda found: self._value(found[1], found[2], marked), text)

    def _choose(self, found: re.Match[str]) -> str:
        return self._rng.choice(found[1].split("|"))

    def _value(self, fresh: str | None, kept: str, marked: bool) -> str:
        if fresh:
            return self._expand(self._rng.choice(self._rules[fresh]), marked)
        if kept not in self._kept:
            self._kept[kept] = self._expand(self._rng.choice(self._rules[kept]))
        return f"[{kept} {self._kept[kept]}]" if marked else self._kept[kept]


def read_marks(marked: str) -> tuple[str, list[Span]]:
    """Return a text without its square brackets, and the spans that they marked."""
    text, spans, done = "", [], 0
    for found in _MARK.finditer(marked):
        text += marked[done : found.start()]
        spans.append(Span(found[1], len(text), len(text) + len(found[2])))
        text, done = text + found[2], found.end()
    return text + marked[done:], spans


@cache
def _read(grammar: str) -> dict[str, Rules]:
    path = _GRAMMARS / f"{grammar}.yaml"
    document: dict[str, Rules] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document
