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

from handlers.batching.tokenization import Window, check_length, tokenize, window
from handlers.errors import RequestError, RequestTooLarge, attempt
from handlers.tasks.base import BaseTask

QueryT = TypeVar("QueryT")
Pair = tuple[str, str]
TRUNCATION = ("only_first", "only_second")


class PairTask(BaseTask[QueryT, Window]):
    """A mode whose requests are several pairs of texts.

    Attributes:
        truncated_side: the side of a pair that is truncated: 0 for the first text.
    """

    truncated_side: ClassVar[Literal[0, 1]]

    @abstractmethod
    def pairs(self, query: QueryT) -> list[Pair]:
        """Return the pairs of a request."""

    @abstractmethod
    def truncates(self, query: QueryT) -> bool:
        """Return whether a pair that is too long is truncated."""

    @abstractmethod
    def name_of(self, query: QueryT, number: int) -> str:
        """Return the name of a pair that is too long, for the error."""

    @abstractmethod
    def lack_of_room(self, tokens: int, limit: int) -> str:
        """Return the error of a pair whose other side leaves no token for the truncated one.

        Args:
            tokens: the number of tokens of the other side, special ones included.
            limit: the maximum number of tokens of a row.
        """

    def encode(self, queries: Sequence[QueryT]) -> list[list[Window] | RequestError]:
        pairs = [self.pairs(query) for query in queries]
        encoding = tokenize(self.tokenizer, [pair for own in pairs for pair in own])
        starts = accumulate(map(len, pairs), initial=0)
        return [
            attempt(self._rows, query, own, encoding, start)
            for query, own, start in zip(queries, pairs, starts, strict=False)
        ]

    def _rows(
        self, query: QueryT, pairs: Sequence[Pair], encoding: BatchEncoding, start: int
    ) -> list[Window]:
        names, limit = self.tokenizer.model_input_names, self.max_tokens
        rows = [window(encoding, start + number, names) for number in range(len(pairs))]
        long = [number for number, row in enumerate(rows) if limit and len(row) > limit]
        if limit is None or not long:
            return rows
        if not self.truncates(query):
            check_length(len(rows[long[0]]), limit, self.name_of(query, long[0]))
        for number in long:
            self._check_room(rows[number], limit)
        options: dict[str, Any] = {"truncation": TRUNCATION[self.truncated_side]}
        chosen = [pairs[number] for number in long]
        truncated = tokenize(self.tokenizer, chosen, max_length=limit, **options)
        for place, number in enumerate(long):
            rows[number] = window(truncated, place, names)
        return rows

    def _check_room(self, row: Window, limit: int) -> None:
        other = sum(number != self.truncated_side for number in row.encoding.sequence_ids)
        if other >= limit:
            raise RequestTooLarge(self.lack_of_room(other, limit))
