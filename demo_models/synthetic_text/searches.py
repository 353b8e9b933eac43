"""Questions with the passage that answers each, and with passages of other questions."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.questions import questions


class Search(NamedTuple):
    """A question, and passages of which the first one answers it."""

    question: str
    passages: list[str]


def searches(split: Split, count: int, passages: int, seed: int) -> list[Search]:
    """Write questions, each with a number of passages."""
    rng = Random(f"searches {split} {seed}")
    answered = [row for row in questions(split, 2 * count + passages, seed) if row.answer]
    contexts = [row.context for row in answered]
    return [
        Search(row.question, [row.context, *_others(contexts, number, passages - 1, rng)])
        for number, row in enumerate(answered[:count])
    ]


def ranking_measures(scores: list[float], passages: int) -> dict[str, float]:
    """Measure how high the first passage of each group ranks, from the scores."""
    groups = [scores[at : at + passages] for at in range(0, len(scores), passages)]
    ranks = [1 + sum(score > group[0] for score in group[1:]) for group in groups]
    return {
        "accuracy": mean(rank == 1 for rank in ranks),
        "mean reciprocal rank": mean(1 / rank for rank in ranks),
    }


def _others(contexts: list[str], number: int, count: int, rng: Random) -> list[str]:
    return rng.sample(contexts[:number] + contexts[number + 1 :], count)
