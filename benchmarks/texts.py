"""Seeded texts of mixed length, as people send them."""

from __future__ import annotations

import random

from transformers import PreTrainedTokenizerBase


def mixed_texts(tokenizer: PreTrainedTokenizerBase, count: int, seed: int = 0) -> list[str]:
    """Return texts of 8 to 128 tokens, median about 25, of whole words of the vocabulary.

    Lengths are log-normal; each word is one token, [CLS] and [SEP] counted to the length.
    """
    draw = random.Random(seed)
    words = sorted(word for word in tokenizer.get_vocab() if word.isalpha() and len(word) > 2)
    lengths = [round(min(128, max(8, draw.lognormvariate(3.2, 0.7)))) for _ in range(count)]
    return [" ".join(draw.choices(words, k=length - 2)) for length in lengths]
