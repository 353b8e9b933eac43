"""A tiny decoder whose tokenizer has a token for each label of an answer."""

from __future__ import annotations

import string
from pathlib import Path

from transformers import AutoTokenizer

from tests import tiny

MODE = "text_generation"
LABELS = ("Yes", "No", *string.ascii_uppercase, *string.digits)


def write(folder: Path, template: str | None = None, *, family: str = "Llama") -> Path:
    """Write a checkpoint, with a chat template if one is given."""
    positions = "n_positions" if family == "GPT2" else "max_position_embeddings"
    tiny.write(folder, MODE, family=family, vocab_size=480, **{positions: 512})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # Single letters and digits without a space are tokens already.
    tokenizer.add_tokens(["Yes", "No"] if template else [f" {label}" for label in LABELS])
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder
