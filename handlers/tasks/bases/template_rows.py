"""Rows of pairs that are written in a template: a query and a document within fixed texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import Encoding
from transformers import BatchEncoding

from ...batching.tokenization import Window
from ...checkpoints.ranking_template import WrittenPair


@dataclass(frozen=True)
class PairEncoding:
    """The tokens of a written pair, and which texts they are in.

    A token of the template has no text, as a special one; offsets refer to the query, text 0, and
    to the document, text 1.

    Attributes:
        ids: the tokens of the row.
        whole: the encoding of the written text. The row has its first `kept` tokens, and behind
            them the last ones of the template.
    """

    ids: Sequence[int]
    whole: Encoding
    kept: int
    written: WrittenPair

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def tokens(self) -> list[str]:
        """The names of the tokens."""
        last = self.whole.tokens[len(self.whole) - (len(self) - self.kept) :]
        return [*self.whole.tokens[: self.kept], *(last if len(self) > self.kept else [])]

    @cached_property
    def sequence_ids(self) -> list[int | None]:
        """The number of the text of each token; None for one of the template."""
        return [number for number, _, _ in self._places]

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """The characters of each token in its text."""
        return [(start, end) for _, start, end in self._places]

    @property
    def word_ids(self) -> list[int | None]:
        """The number of the word of each token."""
        return self._extended(self.whole.word_ids, None)

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for special tokens, 0 for others."""
        return self._extended(self.whole.special_tokens_mask, 1)

    @cached_property
    def _places(self) -> list[tuple[int | None, int, int]]:
        found = [self._place(*each) for each in self.whole.offsets[: self.kept]]
        return self._extended(found, (None, 0, 0))

    def _place(self, start: int, end: int) -> tuple[int | None, int, int]:
        """Return the text of some characters of the whole, and their place in it."""
        for number, (first, last) in enumerate((self.written.query, self.written.document)):
            if start < last and end > first:
                return number, max(start, first) - first, min(end, last) - first
        return None, 0, 0

    def _extended(self, values: Sequence[Any], value: Any) -> list[Any]:
        """Return a value for each token, the same one for those behind the document."""
        return [*values[: self.kept], *[value] * (len(self) - self.kept)]


def tokens_before(encoding: Encoding, written: WrittenPair) -> int:
    """Return the number of tokens before the document."""
    return sum(start < written.document[0] for start, _ in encoding.offsets)


def written_row(
    encoding: BatchEncoding,
    number: int,
    written: WrittenPair,
    names: Sequence[str],
    limit: int | None = None,
    behind: Sequence[int] = (),
) -> Window:
    """Return the row of a written pair, whose document is cut where the row is too long.

    Args:
        encoding: the tokens of several pairs.
        names: the model's input names.
        limit: the maximum number of tokens.
        behind: the tokens of the template behind a document, which stay.
    """
    whole: Encoding = encoding.encodings[number]
    kept = len(whole) if limit is None else min(len(whole), limit - len(behind))
    tail = list(behind) if kept < len(whole) else []
    columns = {name: encoding[name][number][:kept] for name in names if name in encoding}
    rest: Mapping[str, list[int]] = {"input_ids": tail}
    features = {
        name: [*column, *rest.get(name, [0] * len(tail))]
        for name, column in columns.items()
        if name != "attention_mask"
    }
    return Window(features, PairEncoding(features["input_ids"], whole, kept, written))
