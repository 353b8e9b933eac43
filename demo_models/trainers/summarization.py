"""A tiny T5 learns to say in short what two sentences are about."""

from __future__ import annotations

from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.scenes import pairs_of_scenes
from hf_serve.demo_models.text_to_text import Example, TextToTextTrainer
from hf_serve.demo_models.training import Plan


class Summarization(TextToTextTrainer):
    """Two sentences, and who does what in them, without the places."""

    # More and smaller steps than for the other texts, in the same time: two texts become one.
    plan = Plan(rows=9600, batch=16, rate=4e-3)

    def examples(self, split: Split, count: int, seed: int) -> list[Example]:
        return [
            (f"{one.english} {other.english}", f"{one.short} and {other.short}.")
            for one, other in pairs_of_scenes(split, count, seed)
        ]


TRAINER = Summarization()
