"""Rows of random tokens, framed as the tokenizer frames a text.

Warm-up, the trials at load and the graphs of exports run them. Some classifiers find the end of a
text by its end token (BART, T5, CLIP), and fail for a row without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from handlers.batching.batches import Batch
from handlers.batching.rows import Row

MASK = "attention_mask"
# The tokens of a text that a decoder writes.
WRITTEN = "decoder_input_ids"


@dataclass(frozen=True)
class RowMaker:
    """Makes rows of random tokens.

    Attributes:
        ids: the ids that texts have.
        names: the names of the model's inputs, without the attention mask.
        before: the special tokens before those of a text.
        after: the special tokens after them.
        pad: the id of padding.
    """

    ids: Sequence[int]
    names: Sequence[str] = ("input_ids",)
    before: Sequence[int] = ()
    after: Sequence[int] = ()
    pad: int = 0

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, vocabulary: int, pad: int) -> RowMaker:
        """Return what makes rows as a tokenizer does, for a model that has so many ids."""
        names = [name for name in tokenizer.model_input_names if name != MASK]
        special = set(tokenizer.all_special_ids)
        plain = [each for each in _upper_half(vocabulary) if each not in special]
        return cls(plain or _upper_half(vocabulary), names, *_special_tokens(tokenizer), pad)

    @classmethod
    def unframed(cls, vocabulary: int) -> RowMaker:
        """Return what makes rows without special tokens."""
        return cls(_upper_half(vocabulary))

    def rows(self, lengths: Sequence[int], seed: int = 0) -> list[Row]:
        """Return a row of each length, which are the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        return [self._row(length, generator) for length in lengths]

    def batch(self, names: Sequence[str], rows: int, width: int) -> Batch:
        """Return a padded batch; a third of the last row is padding.

        Args:
            names: the names of the inputs; those that are neither ids nor the mask are zeros.
            rows: the number of rows.
            width: the number of tokens of the others.
        """
        last = width - width // 3
        made = self.rows([*[width] * (rows - 1), last], seed=rows * width)
        batch = {name: torch.zeros(rows, width, dtype=torch.long) for name in names}
        texts = [[*row.features["input_ids"], *[self.pad] * (width - len(row))] for row in made]
        batch["input_ids"] = batch[WRITTEN] = torch.tensor(texts)
        batch[MASK] = torch.ones(rows, width, dtype=torch.long)
        batch[MASK][-1, last:] = 0
        return {name: batch[name] for name in names}

    def _row(self, length: int, generator: torch.Generator) -> Row:
        inside = max(0, length - len(self.before) - len(self.after))
        drawn = torch.randint(len(self.ids), (inside,), generator=generator).tolist()
        # Of a row that is shorter than its frame, the end is what a model needs.
        ids = [*self.before, *(self.ids[each] for each in drawn), *self.after][-length:]
        return Row({name: ids if name == "input_ids" else [0] * length for name in self.names})


def _upper_half(vocabulary: int) -> range:
    """Return the ids that special tokens seldom have."""
    return range(vocabulary // 2, vocabulary)


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after those of a text."""
    encoding = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoding["input_ids"], encoding["special_tokens_mask"]
    if 0 not in special:
        return [], ids
    first, last = special.index(0), len(special) - special[::-1].index(0)
    return ids[:first], ids[last:]
