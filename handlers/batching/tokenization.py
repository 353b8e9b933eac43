"""Texts to token rows, many at once, and what happens to those that are too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase

from handlers.errors import RequestTooLarge

Text = tuple[str, str | None]


def tokenize(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Text], **options: Any
) -> BatchEncoding:
    """Tokenize texts, or text pairs, in one call; all of them must be of one kind.

    The result has a list for each input name and for each text: `encoding["input_ids"][i]`.
    """
    firsts = [first for first, _ in texts]
    seconds = [second for _, second in texts if second is not None] or None
    return tokenizer(firsts, seconds, verbose=False, **options)


def features(
    encoding: Mapping[str, Any], number: int, names: Sequence[str]
) -> dict[str, list[int]]:
    """Return one row's model inputs; the attention mask comes with the padding."""
    present = [name for name in names if name != "attention_mask" and name in encoding]
    return {name: encoding[name][number] for name in present}


def check_length(length: int, longest: int | None, what: str) -> None:
    """Refuse a row that the model cannot take.

    Raises:
        RequestTooLarge: with both lengths.
    """
    if longest is not None and length > longest:
        raise RequestTooLarge(
            f"{what} has {length:,} tokens, and this model takes {longest:,}"
            "; shorten it, or let the model's YAML set truncation: true."
        )
