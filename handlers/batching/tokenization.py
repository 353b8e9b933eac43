"""Tokenizing texts into rows and windows, and checks of their length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import Any

from tokenizers import Encoding
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..errors import TextTooLong
from .padding import Side
from .rows import Row

Text = tuple[str, str | None]
# Tokens of a text beyond those that its truncation keeps: without them, these may be others.
SPARE_TOKENS = 16
# Tokens of all windows of a pair that is truncated at the left.
MAX_WINDOW_TOKENS = 500_000
# A fast tokenizer keeps the truncation of its last call, and fails where that changes in another.
IN_TURN = Lock()


@dataclass(frozen=True)
class PlainEncoding:
    """The tokens of a text, or a pair, by a tokenizer that knows no character offsets.

    Attributes:
        special_tokens_mask: 1 for each special token, 0 for the others.
        first: how many tokens the first text of a pair has; None for a single text.
    """

    ids: Sequence[int]
    special_tokens_mask: Sequence[int]
    first: int | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sequence_ids(self) -> list[int | None]:
        """The number of the text of each token; None for special ones."""
        numbers = accumulate(1 - special for special in self.special_tokens_mask)
        first = math.inf if self.first is None else self.first
        pairs = zip(numbers, self.special_tokens_mask, strict=True)
        return [None if special else int(number > first) for number, special in pairs]


@dataclass(frozen=True)
class Window(Row):
    """A row with the offsets, word ids and sequence ids of its tokens.

    A text longer than the model's limit has several windows. `encoding.offsets` are character
    offsets into the whole text in each of them. A :class:`PlainEncoding`, which has none, is only
    in rows of tasks that need none.
    """

    encoding: Encoding


def tokenize(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[Text],
    *,
    truncation_side: Side | None = None,
    **options: Any,
) -> BatchEncoding:
    """Tokenize texts, or text pairs, in one call; either all or none of them have a second text.

    Threads tokenize in turn. `truncation_side` is the side that is cut; by default the
    tokenizer's. Options are passed to the tokenizer.

    The result has a list for each input name and text: `encoding["input_ids"][i]`.
    """
    firsts, seconds = list[str](), list[str]()
    for first, second in texts:
        firsts.append(first)
        if second is not None:
            seconds.append(second)
    with IN_TURN:
        own_side = tokenizer.truncation_side
        tokenizer.truncation_side = truncation_side or own_side
        try:
            if tokenizer.is_fast:
                return tokenizer(firsts, seconds or None, verbose=False, **options)
            return _tokenize_plainly(tokenizer, firsts, seconds or None, options)
        finally:
            tokenizer.truncation_side = own_side


def has_offsets(encoding: Encoding | PlainEncoding) -> bool:
    """Return whether the tokens of a text have their places among its characters."""
    return not isinstance(encoding, PlainEncoding)


def _tokenize_plainly(
    tokenizer: PreTrainedTokenizerBase,
    firsts: Sequence[str],
    seconds: Sequence[str] | None,
    options: Mapping[str, Any],
) -> BatchEncoding:
    """Tokenize with a tokenizer in Python, which counts the tokens of first texts by themselves."""
    given = {**options, "return_special_tokens_mask": True}
    found = tokenizer(firsts, seconds, verbose=False, **given)
    masks = found["special_tokens_mask"]
    if not options.get("return_special_tokens_mask"):
        found.pop("special_tokens_mask")
    counts: Sequence[int | None] = [None] * len(firsts)
    if seconds:
        alone = tokenizer(firsts, add_special_tokens=False, verbose=False)
        counts = [len(ids) for ids in alone["input_ids"]]
    encodings: Any = [
        PlainEncoding(ids, mask, first)
        for ids, mask, first in zip(found["input_ids"], masks, counts, strict=True)
    ]
    return BatchEncoding(dict(found), encoding=encodings, n_sequences=2 if seconds else 1)


def without_excess(
    tokenizer: PreTrainedTokenizerBase,
    pair: Text,
    encoding: Encoding,
    rooms: Sequence[int | None],
    side: Side | None = None,
) -> Text:
    """Return a pair without most of what its truncation removes.

    A fast tokenizer builds windows of everything that it removes, and of two texts all combinations
    of their windows: gigabytes for a few thousand words.

    Args:
        pair: the texts, which are truncated at the same side.
        encoding: the encoding of the whole pair.
        rooms: the tokens of each text that truncation keeps, at most; None for one that it keeps
            whole.
        side: the side that is truncated; by default the tokenizer's.

    Raises:
        RequestTooLarge: a text that is truncated at its beginning is far too long: without that
            part, the tokens would have other offsets.
    """
    # Only fast tokenizers build windows, and only with offsets is it known what to leave out.
    if not has_offsets(encoding):
        return pair
    places = [
        [place for place, own in enumerate(encoding.sequence_ids) if own == number]
        for number in (0, 1)
    ]
    if (side or tokenizer.truncation_side) == "left":
        _check_windows_of_pair([len(own) for own in places], rooms)
        return pair
    first, second = (
        text
        if text is None or room is None
        # The longer one keeps a token more, so it must stay longer.
        else _beginning(text, encoding, own, room + SPARE_TOKENS * (1 + (len(own) > len(other))))
        for text, room, own, other in zip(pair, rooms, places, reversed(places), strict=True)
    )
    return first or "", second


def _beginning(text: str, encoding: Encoding, places: Sequence[int], kept: int) -> str:
    """Return the beginning of a text whose tokens are in some places of an encoding."""
    return text if len(places) <= kept else text[: encoding.offsets[places[kept]][0]]


def _check_windows_of_pair(sizes: Sequence[int], rooms: Sequence[int | None]) -> None:
    """Check how many tokens all windows have together that a tokenizer builds of a pair.

    Raises:
        RequestTooLarge: they have too many.
    """
    truncated = [(size, room) for size, room in zip(sizes, rooms, strict=True) if room is not None]
    # Of two texts that are truncated, each may keep half of the row.
    windows = math.prod(-(-size // max(1, room // len(truncated))) for size, room in truncated)
    whole = sum(size for size, room in zip(sizes, rooms, strict=True) if room is None)
    size, room = max(truncated)
    if windows * (whole + room) > MAX_WINDOW_TOKENS:
        raise TextTooLong(
            f"a text of the pair has {size:,} tokens, {room:,} of which fit at most, and it is"
            " truncated at its beginning; shorten it, or truncate it at its end."
        )


def window(encoding: BatchEncoding, index: int, names: Sequence[str]) -> Window:
    """Return one row of an encoding with its offsets.

    Args:
        encoding: the result of :func:`tokenize`.
        names: the model's input names.
    """
    return Window(features(encoding, index, names), encoding.encodings[index])


def features(encoding: Mapping[str, Any], index: int, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the model inputs of one row without the attention mask, which padding adds."""
    found = {}
    for name in names:
        if name != "attention_mask" and name in encoding:
            found[name] = encoding[name][index]
    return found


def lowest_limit(*limits: int | None) -> int | None:
    """Return the lowest of some limits; None where there are none."""
    return min(filter(None, limits), default=None)


def check_length(length: int, max_tokens: int | None, what: str) -> None:
    """Check that a row is not longer than the model's limit.

    Raises:
        RequestTooLarge: the row is longer; the message has both lengths.
    """
    if max_tokens is not None and length > max_tokens:
        raise TextTooLong(
            f"{what} has {length:,} tokens, and this model takes {max_tokens:,}"
            "; shorten it, or set truncation: true in the YAML of the model."
        )


def split_windows(
    tokenizer: PreTrainedTokenizerBase,
    text: Text,
    length: int,
    *,
    max_length: int,
    repeated: int,
    stride: int,
    limit: int,
    truncation: str | bool = True,
    **options: Any,
) -> list[Window]:
    """Return the windows of a text, or of one text of a pair, that is too long for one row.

    Args:
        length: its tokens in one row.
        max_length: the maximum number of tokens in each window.
        repeated: tokens in every window: special ones, and the other text of a pair.
        stride: overlap of consecutive windows in tokens.
        truncation: the tokenizer's name for which text of a pair is split.

    Raises:
        RequestTooLarge: the text needs more windows than `limit`.
    """
    size = max_length - repeated
    stride = min(stride, size - 1)
    check_windows(length - repeated, size=size, stride=stride, limit=limit)
    windows = tokenize(
        tokenizer,
        [text],
        truncation=truncation,
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        **options,
    )
    names = tokenizer.model_input_names
    return [window(windows, index, names) for index in range(len(windows["input_ids"]))]


def check_windows(tokens: int, *, size: int, stride: int, limit: int) -> None:
    """Check how many windows a text needs, before it is split.

    Args:
        size: tokens of the text in each window.
        stride: overlap of consecutive windows in tokens; less than `size`.

    Raises:
        RequestTooLarge: the text needs more windows than `limit`.
    """
    count = 1 + max(0, -(-(tokens - size) // (size - stride)))
    if count > limit:
        raise TextTooLong(
            f"the text makes {count:,} windows of {size} tokens that overlap by {stride}, and this "
            f"model takes {limit:,} a request; send a shorter text, or let windows overlap less."
        )
