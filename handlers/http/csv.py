"""Tables as CSV, as RFC 4180 and Python's `csv` module define it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

from handlers.errors import BadRequest, RequestTooLarge
from handlers.http.response import encode_json

EMPTY_LINES = re.compile(r"[\r\n]*")
LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)?")
NEWLINE = re.compile(r"\r\n?|\n")

# The default limit of a field is below that of a text, which the model's YAML sets.
csv.field_size_limit(2**31 - 1)


class _Lines:
    """The lines of a table for `csv.reader`, which reads one row from as many as it needs."""

    def __init__(self, text: str, max_row: int) -> None:
        self._text, self._max_row = text, max_row
        self._start = self._end = 0
        self.number = 0

    def start_row(self) -> bool:
        """Skip empty lines; returns whether there is another row."""
        skipped = EMPTY_LINES.match(self._text, self._end)
        self.number += len(NEWLINE.findall(skipped[0])) if skipped else 0
        self._start = self._end = skipped.end() if skipped else self._end
        return self._end < len(self._text)

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = LINE.match(self._text, self._end)
        if not line or not line[0]:
            raise StopIteration
        self.number += 1
        self._end = line.end()
        if self._end - self._start > self._max_row:
            raise RequestTooLarge(
                f"The row at line {self.number} has more than {self._max_row:,} characters"
                "; send less, and quote each text."
            )
        return line[0]


def read_csv(text: str, max_row: int) -> Iterator[list[str] | BadRequest]:
    """Return the rows of a table without empty lines; a row with wrong quotes is its error.

    Args:
        text: the table.
        max_row: the maximum number of characters of a row, quotes included.

    Raises:
        RequestTooLarge: a row is longer; where the next one begins is not known.
    """
    lines = _Lines(text, max_row)
    reader = csv.reader(lines, strict=True)
    while lines.start_row():
        try:
            row = next(reader)
        except csv.Error as error:
            yield BadRequest(f"Line {lines.number} is not CSV: {error}.")
        else:
            yield row


def write_csv(rows: Sequence[Sequence[Any]]) -> bytes:
    """Return rows as CSV; a cell that is not a text is JSON.

    Raises:
        ValueError: a number is not finite, which JSON cannot represent.
    """
    stream = StringIO()
    csv.writer(stream, lineterminator="\n").writerows(
        [cell if isinstance(cell, str) else encode_json(cell).decode() for cell in row]
        for row in rows
    )
    return stream.getvalue().encode("utf-8", "backslashreplace")
