"""A tiny T5 learns to translate English sentences of some fifty words to German."""

from __future__ import annotations

from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.scenes import scenes
from hf_serve.demo_models.text_to_text import Example, TextToTextTrainer


class Translation(TextToTextTrainer):
    """A sentence, and the same in German."""

    prefix = "translate English to German: "
    task_specific_params = {"translation_en_to_de": {"prefix": prefix}}

    def examples(self, split: Split, count: int, seed: int) -> list[Example]:
        return [(scene.english, scene.german) for scene in scenes(split, count, seed)]


TRAINER = Translation()
