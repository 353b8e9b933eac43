"""The base of modes that read a text together with each of several others.

A request is a row for each pair, and the rows of all requests of a batch run together. Of a pair
that is too long, one side is truncated and the other one never. Some models read a pair that is
written in a template: a query and a document within fixed texts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Literal, TypeVar

from tokenizers import Encoding
from transformers import BatchEncoding

from ...batching.tokenization import Text, Window, check_length, tokenize, window, without_excess
from ...checkpoints.ranking_template import WrittenPair
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
