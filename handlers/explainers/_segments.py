"""What an explanation speaks of: tokens, or whole words, with their place in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tokenizers import Encoding

from handlers.batching.tokenization import Window
from handlers.schemas.explanation_parameters import Granularity


@dataclass(frozen=True)
class Segment:
    """Some neighbouring tokens of a row.

    `start` and `end` are characters of the text that they came from; `sequence` is the number of
    that text, None for special tokens.
    """

    text: str
    start: int
    end: int
    tokens: tuple[int, ...]
    sequence: int | None

    @property
    def special(self) -> bool:
        """Whether it is [CLS], [SEP] or the like, which no explanation changes."""
        return self.sequence is None


def segment_tokens(row: Window, texts: Sequence[str], granularity: Granularity) -> list[Segment]:
    """Return the row's tokens, one a piece or joined to words.

    Args:
        row: the row as the tokenizer laid it.
        texts: the text, or both texts of a pair.
        granularity: what a piece is.
    """
    encoding = row.encoding
    numbers = range(len(row))
    if granularity == "token":
        return [_segment(encoding, texts, [number]) for number in numbers]
    words = groupby(numbers, key=lambda number: _word(encoding, number))
    return [_segment(encoding, texts, list(tokens)) for _, tokens in words]


def _word(encoding: Encoding, number: int) -> tuple[int, ...]:
    word, sequence = encoding.word_ids[number], encoding.sequence_ids[number]
    return (number,) if word is None or sequence is None else (sequence, word)


def _segment(encoding: Encoding, texts: Sequence[str], tokens: list[int]) -> Segment:
    sequence = encoding.sequence_ids[tokens[0]]
    start, end = encoding.offsets[tokens[0]][0], encoding.offsets[tokens[-1]][1]
    if encoding.special_tokens_mask[tokens[0]]:
        sequence = None
    written = texts[sequence][start:end] if sequence is not None else ""
    # Byte-level tokenizers count the space before a word to the word.
    start += len(written) - len(written.lstrip())
    written = written.strip()
    token = encoding.tokens[tokens[0]]
    whole = len(tokens) == 1 and token.isascii()
    return Segment(token if whole or not written else written, start, end, tuple(tokens), sequence)
