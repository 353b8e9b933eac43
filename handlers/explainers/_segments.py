"""Segments of a row that an explanation refers to: tokens or words, with character offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tokenizers import Encoding

from handlers.batching.tokenization import Window
from handlers.types.parameters import Granularity


@dataclass(frozen=True)
class Segment:
    """Consecutive tokens of a row.

    Attributes:
        text: the text of the segment, or the token if it has none.
        start: start offset in characters of the text.
        end: end offset in characters.
        tokens: token indices in the row.
        sequence: 0 for the first text of a pair, 1 for the second, None for special tokens.
    """

    text: str
    start: int
    end: int
    tokens: tuple[int, ...]
    sequence: int | None

    @property
    def special(self) -> bool:
        """Whether it is a special token such as [CLS], which is never replaced."""
        return self.sequence is None


def segment_tokens(row: Window, texts: Sequence[str], granularity: Granularity) -> list[Segment]:
    """Return the segments of a row.

    Args:
        row: the row.
        texts: the text, or both texts of a pair.
        granularity: whether a segment is a token or a word.
    """
    encoding = row.encoding
    indices = range(len(row))
    if granularity == "token":
        return [_segment(encoding, texts, [index]) for index in indices]
    words = groupby(indices, key=lambda index: _word_id(encoding, index))
    return [_segment(encoding, texts, list(tokens)) for _, tokens in words]


def _word_id(encoding: Encoding, index: int) -> tuple[int, ...]:
    word, sequence = encoding.word_ids[index], encoding.sequence_ids[index]
    return (index,) if word is None or sequence is None else (sequence, word)


def _segment(encoding: Encoding, texts: Sequence[str], tokens: list[int]) -> Segment:
    sequence = encoding.sequence_ids[tokens[0]]
    start, end = encoding.offsets[tokens[0]][0], encoding.offsets[tokens[-1]][1]
    if encoding.special_tokens_mask[tokens[0]]:
        sequence = None
    text = texts[sequence][start:end] if sequence is not None else ""
    # Byte-level tokenizers include the space before a word in its offsets.
    start += len(text) - len(text.lstrip())
    text = text.strip()
    token = encoding.tokens[tokens[0]]
    readable = len(tokens) == 1 and token.isascii()
    return Segment(token if readable or not text else text, start, end, tuple(tokens), sequence)
