"""Texts to continue: short stories, and some of the reviews and passages of the other trainers."""

from __future__ import annotations

from random import Random

from hf_serve.demo_models.synthetic_text.grammar import Expansion, Split, rules_of
from hf_serve.demo_models.synthetic_text.questions import questions
from hf_serve.demo_models.synthetic_text.sentiment import reviews


def stories(split: Split, count: int, seed: int) -> list[str]:
    """Write stories; names and things stay the same in each."""
    rules, rng = rules_of("stories", split), Random(f"stories {split} {seed}")
    return [Expansion(rules, rng).expand("{story}") for _ in range(count)]


def library(split: Split, count: int, seed: int) -> list[str]:
    """Write texts: of six, four are stories, one is a review and one a passage."""
    share = count // 6
    passages = [question.context for question in questions(split, share, seed)]
    opinions = [review.text for review in reviews(split, share, seed)]
    return stories(split, count - 2 * share, seed) + passages + opinions
