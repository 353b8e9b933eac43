"""Grammars: rules in YAML from which the training texts are generated.

In a rule, `{word}` stands for any rule of `word`, drawn each time; `<word>` is drawn once for an
expansion and stays the same; `(a|b)` is a choice; `[PER Anna Berg]` marks a span. A rule may have
several forms, as `write/wrote`: `<word>` is the first one and `<word/2>` the second.

Held-out rules have other patterns and words than those for training. A tenth of the training rules
is kept for validation, by which the best checkpoint of a long training is chosen.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import yaml

Split = Literal["train", "validation", "held_out"]
Rules = dict[str, Any]

_GRAMMARS = Path(__file__).parent / "grammars"
_REFERENCE = re.compile(r"\{(\w+)\}|<(\w+)(?:/(\d))?>")
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_ARTICLE = re.compile(r"\b([Aa])(?= (?:\[\w+ )?(?!uni|use|eu|one)[aeiou])", re.IGNORECASE)
MARK = re.compile(r"\[(\w+) ([^\[\]]*)\]")
# In a list with at least this many rules, one rule in this many is kept for validation.
_VALIDATION = 10
_SENTENCE = re.compile(r"((?:^|[.!?] )(?:\[\w+ )?)([a-z])")


class Span(NamedTuple):
    """A labelled span of a text: characters `start` up to, not including, `end`."""

    label: str
    start: int
    end: int


@cache
def rules_of(grammar: str, split: Split) -> Rules:
    """Return the rules of `grammars/<grammar>.yaml` for a split, the shared names included."""
    part = "held_out" if split == "held_out" else "train"
    rules = {**_read("names")[part], **_read(grammar).get("shared", {}), **_read(grammar)[part]}
    return rules if split == "held_out" else _divided(rules, split == "validation")


class Expansion:
    """Texts from one grammar, in which `<word>` always has the value that is drawn first."""

    def __init__(self, rules: Rules, rng: Random) -> None:
        self._rules, self._rng = rules, rng
        self._kept: dict[str, str] = {}

    def expand(self, text: str, *, marked: bool = False) -> str:
        """Expand a text; with `marked`, the value of `<word>` is written as `[word value]`."""
        expanded = self._expand(text, marked)
        spaced = re.sub(r" +(?= |[.,;!?])", "", expanded)
        articled = _ARTICLE.sub(r"\1n", spaced)
        return _SENTENCE.sub(lambda found: found[1] + found[2].upper(), articled)

    @property
    def values(self) -> set[str]:
        """The values drawn for `<word>`s so far."""
        return set(self._kept.values())

    def _expand(self, text: str, marked: bool = False) -> str:
        while (chosen := _CHOICE.sub(self._choose, text)) != text:
            text = chosen
        return _REFERENCE.sub(lambda found: self._value(*found.groups(), marked=marked), text)

    def _choose(self, found: re.Match[str]) -> str:
        return self._rng.choice(found[1].split("|"))

    def _value(self, fresh: str | None, kept: str, form: str | None = None, *, marked: bool) -> str:
        if fresh:
            return _form(self._expand(self._rng.choice(self._rules[fresh]), marked), form)
        if kept not in self._kept:
            self._kept[kept] = self._expand(self._rng.choice(self._rules[kept]))
        value = _form(self._kept[kept], form)
        return f"[{kept} {value}]" if marked and not form else value


def read_marks(marked: str) -> tuple[str, list[Span]]:
    """Return a text without its square brackets, and the spans that they marked."""
    text, spans, done = "", [], 0
    for found in MARK.finditer(marked):
        text += marked[done : found.start()]
        spans.append(Span(found[1], len(text), len(text) + len(found[2])))
        text, done = text + found[2], found.end()
    return text + marked[done:], spans


def has_words(rule: str) -> bool:
    """Return whether a rule has words, not only references and punctuation."""
    return any(letter.isalpha() for letter in _REFERENCE.sub("", rule))


def _form(value: str, form: str | None) -> str:
    return value.split("/")[int(form or 1) - 1]


def _divided(rules: Rules, validation: bool) -> Rules:
    """The rules for validation or those for training; rules that only name others are both."""
    return {
        word: _divided(entries, validation)
        if isinstance(entries, dict)
        else _part(entries, validation)
        for word, entries in rules.items()
    }


def _part(entries: list[Any], validation: bool) -> list[Any]:
    own = [entry for entry in entries if isinstance(entry, list) or has_words(entry)]
    distinct = [entry for number, entry in enumerate(own) if entry not in own[:number]]
    if len(distinct) < _VALIDATION:
        return entries
    kept = distinct[::_VALIDATION]
    return [entry for entry in entries if entry not in own or (entry in kept) == validation]


def written(grammar: str) -> Any:
    """Return the content of `grammars/<grammar>.yaml`."""
    return yaml.safe_load((_GRAMMARS / f"{grammar}.yaml").read_text(encoding="utf-8"))


@cache
def _read(grammar: str) -> dict[str, Rules]:
    document: dict[str, Rules] = written(grammar)
    return document
