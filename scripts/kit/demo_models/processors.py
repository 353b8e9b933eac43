"""What a model of images and texts reads with: an image processor and a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.kit.demo_models.minilm import load_tokenizer

# The most frequent words, the names of colours and shapes among them.
WORDS = 10_000


@dataclass(frozen=True)
class Processors:
    """An image processor and a tokenizer, which are saved together."""

    images: Any
    tokenizer: Any

    @classmethod
    def with_words(cls, images: Any, positions: int) -> Processors:
        """Return them with a tokenizer of :data:`WORDS` for texts of as many tokens."""
        tokenizer = load_tokenizer(WORDS)
        tokenizer.model_max_length = positions
        return cls(images, tokenizer)

    def save_pretrained(self, folder: Path) -> None:
        """Write both."""
        self.images.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
