"""Tables as CSV, as RFC 4180 and Python's `csv` module define it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

from handlers.errors import BadRequest
from handlers.http.response import encode_json

# The default limit of a field is below that of a text, which the model's YAML sets.
csv.field_size_limit(2**31 - 1)


def read_csv(text: str) -> Iterator[list[str] | BadRequest]:
    """Return the rows of a table without empty lines; a row with wrong quotes is its error."""
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadRequest(f"Line {reader.line_num} is not CSV: {error}.")
        else:
            if row:
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
