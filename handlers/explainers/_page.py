"""Explanations as one self-contained page: no script, nothing loaded, all text escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from handlers.http.accept import parse_accept

HTML = "text/html; charset=utf-8"

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Mark:
    """A piece of text with its importance: `strength` from 0 to 100, `sign` of + or −."""

    text: str
    importance: float
    strength: int
    sign: str
    spaced: bool


@dataclass(frozen=True)
class View:
    """One coloured line: what it shows, and the pieces."""

    title: str
    marks: Sequence[Mark]

    @property
    def strongest(self) -> list[Mark]:
        """The pieces that matter most, first."""
        ranked = sorted(self.marks, key=lambda mark: -abs(mark.importance))
        return [mark for mark in ranked if mark.strength][:5]


def render(explanations: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the page of one or several explanations, as `/explanations` gives them in JSON."""
    page = _ENVIRONMENT.get_template("explanation.html.j2")
    cards = [
        {"explanation": explanation, "views": list(_views(explanation))}
        for explanation in explanations
    ]
    return page.render(cards=cards, label=_label).encode("utf-8", "replace")


def prefers_page(accept: str) -> bool:
    """Tell whether an Accept header likes a page better than JSON, as a browser's does."""
    wished = dict(parse_accept(accept))
    others = max(wished.get("application/json", 0.0), wished.get("*/*", 0.0))
    return wished.get("text/html", 0.0) > others


def _views(explanation: Mapping[str, Any]) -> Iterator[View]:
    if "code" in explanation:
        return
    if "importances" in explanation:
        yield View("What counted", _marks(explanation, explanation["importances"]))
    else:
        for side in ("start", "end"):
            importances = explanation[f"importances_answer_{side}"]
            yield View(f"Why it {side}s there", _marks(explanation, importances))
    for token in explanation.get("tokens", ()):
        title = f"What led to “{token['token']}”"
        yield View(title, _marks(explanation, token["importances"]))


def _marks(explanation: Mapping[str, Any], importances: Sequence[float]) -> list[Mark]:
    most = max((abs(value) for value in importances), default=0.0) or 1.0
    places = zip(explanation["words"], explanation["offsets"], importances, strict=True)
    marks, end = [], 0
    for word, (start, stop), value in places:
        strength = round(100 * abs(value) / most)
        sign = "+" if value >= 0 else "−"
        glued = start == end > 0
        text = word.removeprefix("##") if glued else word
        marks.append(Mark(text, value, strength, sign if strength else "", not glued))
        end = stop
    return marks


def _label(answer: Mapping[str, Any]) -> str:
    text = answer.get("label", answer.get("answer", answer.get("generated_text", "")))
    score = f" ({answer['score']:.1%})" if "score" in answer else ""
    return f"{text}{score}"
