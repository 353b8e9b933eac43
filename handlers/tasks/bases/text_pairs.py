"""The base of modes that read a text together with each of several others.

A request is a row for each pair, and the rows of all requests of a batch run together. Of a pair
that is too long, one side is truncated and the other one never.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar, Literal, TypeVar

from transformers import BatchEncoding

from ...batching.tokenization import Text, Window, check_length, tokenize, window, without_excess
from ...errors import RequestError, TextTooLong, attempt
from .text import TextTask

InputT = TypeVar("InputT")
Pair = tuple[str, str]
TRUNCATION = ("only_first", "only_second")
# Characters for each token of a row, above which a text is tokenized once before it is tokenized in
# each of its pairs.
LONG = 8
# Characters for each token of a row that a text in several pairs may have. Spaces and words without
# tokens take time to tokenize as well.
MAX_LONG = 32


class PairTask(TextTask[InputT, Window]):
    """A mode whose requests are several pairs of texts.

    Attributes:
        truncated_side: the side of a pair that is truncated: 0 for the first text.
    """

    truncated_side: ClassVar[Literal[0, 1]]

    @abstractmethod
    def pairs(self, item: InputT) -> list[Pair]:
        """Return the pairs of a request."""

    @abstractmethod
    def truncates(self, item: InputT) -> bool:
        """Return whether a pair that is too long is truncated."""

    def length_limit(self, item: InputT) -> int | None:
        """Return the maximum number of tokens of a pair; None where there is none."""
        return self.max_tokens

    @abstractmethod
    def name_of(self, item: InputT, number: int) -> str:
        """Return the name of a pair that is too long, for the error."""

    @abstractmethod
    def lack_of_room(self, tokens: int, limit: int) -> str:
        """Return the error of a pair whose other side leaves no token for the truncated one.

        Args:
            tokens: the number of tokens of the other side, special ones included.
            limit: the maximum number of tokens of a row.
        """

    def least_rows(self, item: InputT) -> int:
        return len(self.pairs(item))

    def encoding_cost(self, item: InputT) -> int:
        return sum(len(first) + len(second) for first, second in self.pairs(item))

    def check_whole_side(self, text: str) -> str:
        """Return a text of the side that is not truncated, which leaves room for the other side.

        It would otherwise be tokenized in full in each pair before its length is checked.

        Raises:
            RequestTooLarge: it leaves none.
        """
        limit = self.max_tokens
        if limit is not None and len(text) > LONG * limit:
            encoding = tokenize(self.tokenizer, [(text, None)], add_special_tokens=False)
            tokens = len(encoding["input_ids"][0])
            self._check_room(tokens + self.tokenizer.num_special_tokens_to_add(pair=True), limit)
            _check_characters(text, limit)
        return text

    def beginning(self, text: str) -> str:
        """Return the beginning of a text of the side that is truncated, with all that a row takes.

        It has twice the tokens of a row, or less: a long text would otherwise be tokenized in full
        in each pair.

        Raises:
            RequestTooLarge: it has too many characters.
        """
        limit = self.max_tokens
        if limit is None or len(text) <= LONG * limit:
            return text
        if not self.tokenizer.is_fast:
            return text[: MAX_LONG * limit]
        encoding = tokenize(self.tokenizer, [(text, None)], add_special_tokens=False)[0]
        if len(encoding) > 2 * limit:
            text = text[: encoding.offsets[2 * limit][0]]
        _check_characters(text, limit)
        return text

    def encode(self, inputs: Sequence[InputT]) -> list[list[Window] | RequestError]:
        pairs = [self.pairs(item) for item in inputs]
        encoding = tokenize(self.tokenizer, [pair for own in pairs for pair in own])
        starts = accumulate(map(len, pairs), initial=0)
        return [
            attempt(self._rows, item, own, encoding, start)
            for item, own, start in zip(inputs, pairs, starts, strict=False)
        ]

    def _rows(
        self, item: InputT, pairs: Sequence[Pair], encoding: BatchEncoding, start: int
    ) -> list[Window]:
        names, limit = self.tokenizer.model_input_names, self.length_limit(item)
        rows = [window(encoding, start + number, names) for number in range(len(pairs))]
        long = [number for number, row in enumerate(rows) if limit and len(row) > limit]
        if limit is None or not long:
            return rows
        if not self.truncates(item):
            for number in long:
                check_length(len(rows[number]), self.max_tokens, self.name_of(item, number))
        for number in long:
            self._check_room(self._whole_side_tokens(rows[number]), limit)
        options: dict[str, Any] = {"truncation": TRUNCATION[self.truncated_side]}
        chosen = [self._without_excess(pairs[number], rows[number], limit) for number in long]
        truncated = tokenize(self.tokenizer, chosen, max_length=limit, **options)
        for place, number in enumerate(long):
            rows[number] = window(truncated, place, names)
        return rows

    def _without_excess(self, pair: Pair, row: Window, limit: int) -> Text:
        room = limit - self._whole_side_tokens(row)
        rooms = [room if side == self.truncated_side else None for side in (0, 1)]
        return without_excess(self.tokenizer, pair, row.encoding, rooms)

    def _whole_side_tokens(self, row: Window) -> int:
        """Return the number of tokens of the side that is not truncated, and of special ones."""
        return sum(number != self.truncated_side for number in row.encoding.sequence_ids)

    def _check_room(self, tokens: int, limit: int) -> None:
        if tokens >= limit:
            raise TextTooLong(self.lack_of_room(tokens, limit))


def _check_characters(text: str, limit: int) -> None:
    """Check that a text in several pairs has not many more characters than a row has tokens."""
    if len(text) > MAX_LONG * limit:
        raise TextTooLong(
            f"a text that is read with several others has {len(text):,} characters for few tokens,"
            f" and this model takes {MAX_LONG * limit:,}; shorten its words and spaces."
        )
