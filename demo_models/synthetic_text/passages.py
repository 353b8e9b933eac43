"""Ordinary passages that are written by hand, with questions about each."""

from __future__ import annotations

from random import Random
from typing import Any

from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.questions import Question, questions
from hf_serve.demo_models.synthetic_text.written import entries, repeated

# The shares of questions for training that get another passage in addition, before or after their
# passage, and that get another one in its place, which then has no answer.
LONGER, FOREIGN = 0.3, 0.08


def passages(split: Split = "held_out") -> list[str]:
    """Return the passages."""
    return [str(each["text"]) for each in entries("passages", split)]


def asked(split: Split = "held_out") -> list[tuple[int, Question]]:
    """Return questions with the answer that stands in the passage of a number."""
    return [
        (number, _question(each["text"], str(question), answers))
        for number, each in enumerate(entries("passages", split))
        for question, answers in each["asks"].items()
    ]


def unanswerable(split: Split) -> list[Question]:
    """Return questions about passages that do not have the answer."""
    return [
        Question(str(question), each["text"], 0, 0)
        for each in entries("passages", split)
        for question in each.get("cannot", ())
    ]


def mixed_questions(count: int, seed: int) -> list[Question]:
    """Return questions for training, half of them written by hand."""
    rng = Random(f"mixed questions {seed}")
    rows = [question for _, question in asked("train")] + unanswerable("train")
    others = passages("train")
    written = [_varied(row, others, rng) for row in repeated(rows, count // 2, rng)]
    return rng.sample(written + questions("train", count - len(written), seed), count)


def _question(text: str, question: str, answers: Any) -> Question:
    answer, *others = map(str, answers if isinstance(answers, list) else [answers])
    start = text.index(answer)
    return Question(question, text, start, start + len(answer), tuple(others))


def _varied(row: Question, others: list[str], rng: Random) -> Question:
    """The question with more to read, or with a passage that is about something else."""
    other, chance = rng.choice(others), rng.random()
    if other == row.context or chance > LONGER + FOREIGN:
        return row
    if chance < FOREIGN:
        return Question(row.question, other, 0, 0)
    if not row.answer or rng.random() < 0.5:
        return row._replace(context=f"{row.context} {other}")
    moved = len(other) + 1
    return Question(row.question, f"{other} {row.context}", row.start + moved, row.end + moved)
