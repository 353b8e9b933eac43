"""Seeded texts of mixed length."""

from __future__ import annotations

import random
from typing import Any

from transformers import PreTrainedTokenizerBase

from handlers import tasks
from handlers.schemas.model_info import Columns

SHORTEST, LONGEST = 8, 128
QUESTION_WORDS = 6  # fewer for short rows


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
    words = sorted(filter(_is_plain, tokenizer.get_vocab()))
    drawn = [generator.lognormvariate(3.2, 0.7) for _ in range(count)]
    lengths = [times * round(min(longest, max(SHORTEST, length))) for length in drawn]
    return [" ".join(generator.choices(words, k=length - 2)) for length in lengths]


def mixed_inputs(mode: str, tokenizer: PreTrainedTokenizerBase, count: int, seed: int) -> list[Any]:
    """Return inputs for a mode; a text is split into question and context if required."""
    texts = mixed_texts(tokenizer, count, seed)
    names = tasks.get(mode).input_columns[0]
    return [_divide(text, names) for text in texts] if len(names) > 1 else list(texts)


def _is_plain(word: str) -> bool:
    """Return whether a vocabulary entry is a word that tokenizers neither change nor split."""
    return word.isascii() and word.isalpha() and word.islower() and len(word) > 2


def _divide(text: str, names: Columns) -> dict[str, str]:
    """Return the columns of a pair: a short one, such as a question, and the rest."""
    first, second = names
    words = text.split()[1:]  # one fewer, for the [SEP] between the two
    middle = min(QUESTION_WORDS, len(words) // 2)
    return {first: " ".join(words[:middle]), second: " ".join(words[middle:])}
