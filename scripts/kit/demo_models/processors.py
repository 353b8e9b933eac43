"""The tokenizer and the image processor of a model that reads both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Processors:
    """A tokenizer and an image processor, which are saved together."""

    tokenizer: Any
    images: Any

    def save_pretrained(self, folder: Path) -> None:
        """Write the files of both to a folder."""
        self.tokenizer.save_pretrained(folder)
        self.images.save_pretrained(folder)
