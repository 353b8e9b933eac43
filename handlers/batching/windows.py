"""A text as the tokenizer laid it into one row: ids, character offsets, words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Encoding
from transformers import BatchEncoding

from handlers.batching.rows import Row
from handlers.batching.tokenization import features
from handlers.errors import RequestTooLarge


@dataclass(frozen=True)
class Window(Row):
    """A row that remembers which part of the text each token came from.

    `encoding.offsets` are character offsets into the text, also in later windows.
    """

    encoding: Encoding


def window(encoding: BatchEncoding, number: int, names: Sequence[str]) -> Window:
    """Return one row of a tokenizer's answer with its offsets."""
    return Window(features(encoding, number, names), encoding.encodings[number])


def check_windows(tokens: int, *, room: int, stride: int, most: int) -> None:
    """Refuse a text that makes too many windows, before it is cut into them.

    Args:
        tokens: how many tokens the text has.
        room: how many of them a window takes.
        stride: by how many windows overlap; fewer than `room`.
        most: windows that a request may have.

    Raises:
        RequestTooLarge: with their number.
    """
    count = 1 + max(0, -(-(tokens - room) // (room - stride)))
    if count > most:
        raise RequestTooLarge(
            f"the text makes {count:,} windows of {room} tokens that overlap by {stride}, and this "
            f"model takes {most:,} a request; send a shorter text, or let windows overlap less."
        )
