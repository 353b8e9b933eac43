"""Ordinary passages that are written by hand, with questions about each."""

from __future__ import annotations

from scripts.kit.demo_models.grammar import written
from scripts.kit.demo_models.questions import Question


def passages() -> list[str]:
    """Return the passages."""
    return [str(each["text"]) for each in written("passages")]


def asked() -> list[tuple[int, Question]]:
    """Return questions with the answer that stands in the passage of a number."""
    return [
        (number, _question(each["text"], question, answer))
        for number, each in enumerate(written("passages"))
        for question, answer in each["asks"].items()
    ]


def _question(text: str, question: str, answer: str) -> Question:
    start = text.index(answer)
    return Question(question, text, start, start + len(answer))
