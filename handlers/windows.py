"""A text as the tokenizer laid it into one row: ids, character offsets, words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Encoding
from transformers import BatchEncoding

from handlers.rows import Row
from handlers.tokenize import features


@dataclass(frozen=True)
class Window(Row):
    """A row that remembers which part of the text each token came from.

    `encoding.offsets` are character offsets into the text, also in later windows.
    """

    encoding: Encoding


def window(encoding: BatchEncoding, number: int, names: Sequence[str]) -> Window:
    """Return one row of a tokenizer's answer with its offsets."""
    return Window(features(encoding, number, names), encoding.encodings[number])
