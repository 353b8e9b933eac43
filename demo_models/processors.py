"""The tokenizer and the image processor of a model that reads both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_serve.demo_models.minilm import load_tokenizer

# The most frequent words, the names of colours and shapes among them.
WORDS = 10_000


@dataclass(frozen=True)
class Processors:
    """A tokenizer and an image processor, which are saved together."""

    tokenizer: Any
    images: Any

    @classmethod
    def with_words(cls, images: Any, positions: int) -> Processors:
        """Return them with a tokenizer of :data:`WORDS` for texts of as many tokens."""
        tokenizer = load_tokenizer(WORDS)
        tokenizer.model_max_length = positions
        return cls(tokenizer, images)

    def save_pretrained(self, folder: Path) -> None:
        """Write the files of both to a folder."""
        self.tokenizer.save_pretrained(folder)
        self.images.save_pretrained(folder)
