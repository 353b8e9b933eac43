"""A tiny T5 learns to answer who does something, and where."""

from __future__ import annotations

from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.scenes import Scene, pairs_of_scenes
from hf_serve.demo_models.text_to_text import Example, TextToTextTrainer


class Text2TextGeneration(TextToTextTrainer):
    """A question and two sentences, and the answer."""

    def examples(self, split: Split, count: int, seed: int) -> list[Example]:
        pairs = pairs_of_scenes(split, count, seed)
        return [_example(number, *pair) for number, pair in enumerate(pairs)]


def _example(number: int, one: Scene, other: Scene) -> Example:
    """Return a question about the first or the second sentence: who it is, or where."""
    asked = (one, other)[number % 2]
    question = f"Who {asked.verb}?" if number % 4 < 2 else f"Where is {asked.person}?"
    answer = asked.person if number % 4 < 2 else asked.where
    return f"question: {question} context: {one.english} {other.english}", answer


TRAINER = Text2TextGeneration()
