"""Seeded texts of mixed length."""

from __future__ import annotations

import random
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_serve.handlers import tasks

SHORTEST, LONGEST = 8, 128


def mixed_texts(
    tokenizer: PreTrainedTokenizerBase,
    count: int,
    seed: int = 0,
    *,
    longest: int = LONGEST,
    times: int = 1,
) -> list[str]:
    """Return texts of 8 to 128 tokens, median about 25, from whole words of the vocabulary.

    Lengths are log-normal and include [CLS] and [SEP]; each word is one token. `times` multiplies
    the length of each text.
    """
    generator = random.Random(seed)
    words = sorted(filter(is_plain, tokenizer.get_vocab()))
    drawn = [generator.lognormvariate(3.2, 0.7) for _ in range(count)]
    lengths = [times * round(min(longest, max(SHORTEST, length))) for length in drawn]
    return [" ".join(generator.choices(words, k=length - 2)) for length in lengths]


def mixed_inputs(mode: str, tokenizer: PreTrainedTokenizerBase, count: int, seed: int) -> list[Any]:
    """Return inputs for a mode, made of such texts."""
    return [tasks.get(mode).example_inputs(text) for text in mixed_texts(tokenizer, count, seed)]


def is_plain(word: str) -> bool:
    """Return whether a vocabulary entry is a word that tokenizers neither change nor split."""
    return word.isascii() and word.isalpha() and word.islower() and len(word) > 2
