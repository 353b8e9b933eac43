"""Explanations as an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..http.html import templates

_TEMPLATES = templates(Path(__file__).parent)


class View:
    """A part of a page: a highlighted text, or a picture with its heat map.

    Attributes:
        template: the file of its template, in which it is `view`.
    """

    template: ClassVar[str]


Views = Callable[[Mapping[str, Any]], Iterable[View]]


@dataclass(frozen=True)
class Mark:
    """A highlighted segment.

    Attributes:
        strength: the absolute importance relative to the largest, from 0 to 100.
        sign: `+`, `−`, or empty if the strength is 0.
        spaced: whether a space precedes the segment.
    """

    text: str
    importance: float
    strength: int
    sign: str
    spaced: bool


@dataclass(frozen=True)
class TextView(View):
    """A highlighted text with a title."""

    template = "text_view.html.j2"

    title: str
    marks: Sequence[Mark]

    @property
    def strongest(self) -> list[Mark]:
        """Up to five segments in descending order of absolute importance."""
        ranked = sorted(self.marks, key=lambda mark: -abs(mark.importance))
        return [mark for mark in ranked if mark.strength][:5]


@dataclass(frozen=True)
class ImageView(View):
    """A picture with the heat map of its patches.

    Attributes:
        image: the picture, as JPEG in base64.
        heat_map: the heat map, as PNG in base64.
        height: the height of both in pixels.
        width: their width.
        importances: the importance of each patch, row by row.
        box: an object in the picture: the shares of its width and height at the object's left, top,
            right and lower edge; None without one.
    """

    template = "image_view.html.j2"

    title: str
    image: str
    heat_map: str
    height: int
    width: int
    importances: Sequence[Sequence[float]]
    box: tuple[float, float, float, float] | None = None


def text_view(title: str, explanation: Mapping[str, Any], importances: Sequence[float]) -> TextView:
    """Return the text of an explanation, highlighted by importances of its words."""
    return TextView(title, _marks(explanation, importances))


def target_view(explanation: Mapping[str, Any]) -> Iterator[View]:
    """Yield the text of an explanation, highlighted for the explained target."""
    yield text_view("Importance for the target", explanation, explanation["importances"])


def render(explanations: Sequence[Mapping[str, Any]], views: Views = target_view) -> bytes:
    """Return an HTML page.

    Args:
        explanations: explanations and error bodies in the JSON form of `/explanations`.
        views: returns what is shown of an explanation.
    """
    page = _TEMPLATES.get_template("explanation.html.j2")
    cards = [
        {
            "explanation": explanation,
            "views": [] if "code" in explanation else list(views(explanation)),
        }
        for explanation in explanations
    ]
    return page.render(cards=cards, label=_label).encode("utf-8", "replace")


def _marks(explanation: Mapping[str, Any], importances: Sequence[float]) -> list[Mark]:
    largest = max((abs(value) for value in importances), default=0.0) or 1.0
    segments = zip(explanation["words"], explanation["offsets"], importances, strict=True)
    marks, end = [], 0
    for word, (start, stop), value in segments:
        strength = round(100 * abs(value) / largest)
        sign = "+" if value >= 0 else "−"
        continues = start == end > 0
        text = word.removeprefix("##") if continues else word
        marks.append(Mark(text, value, strength, sign if strength else "", not continues))
        end = stop
    return marks


def _label(answer: Mapping[str, Any]) -> str:
    text = answer.get("label", answer.get("answer", answer.get("generated_text", "")))
    score = f" ({_score(answer['score'])})" if "score" in answer else ""
    return f"{text}{score}"


def _score(score: float) -> str:
    """Return a probability in percent, and a score that is none as a number."""
    return f"{score:.1%}" if 0 <= score <= 1 else f"{score:.3g}"
