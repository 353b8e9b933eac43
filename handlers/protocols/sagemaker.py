"""SageMaker's JSON Lines and CSV: a request in each line, and its result in the same place.

    application/jsonlines   {"inputs": …, "parameters": {…}}, "a text", {"features": [a text]} …
    text/csv                a text; a text and its pair; a question and its context

The Accept header chooses between JSON Lines, CSV and a JSON list. SageMaker's `/invocations` is
TorchServe's route to the one model of a server; every other route takes these bodies as well.

https://docs.aws.amazon.com/sagemaker/latest/dg/cdf-inference.html
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from ..config.messages import quote
from ..errors import BadRequest, RequestError, RequestTooLarge, Unprocessable, attempt
from ..http.decoding import check_json_size, parse_json
from ..http.request import HttpRequest
from ..http.response import JSON, HttpResponse
from ..types.model_info import Columns
from ..types.request import Request
from .base import NO_BODY, BaseProtocol, ParsedRequest
from .items import from_columns, named, read_item, read_stream
from .result_formats import CSV, LINES_TYPES, format_results, preferred_type

# Other names that a header line may have for a text.
COLUMN_ALIASES = {"inputs": "text", "prompt": "text"}
# A line that is not empty. Not splitlines: JSON may hold other line separators than this one.
LINE = re.compile(r"\S[^\n]*")
# Those of a table, as RFC 4180 and Python's `csv` module define it.
EMPTY_LINES = re.compile(r"[\r\n]*")
TABLE_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)?")
NEWLINE = re.compile(r"\r\n?|\n")

# The default limit of a field is smaller than the limit of a text in the model's YAML.
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Line:
    """The items of a line: one, or with a list of inputs several, whose results are a list."""

    items: Sequence[Request | RequestError]
    is_list: bool = False


class Protocol(BaseProtocol):
    """A line of JSON is answered as if it came alone, a row of a table as an item of a list."""

    body_keys = NO_BODY

    def recognises(self, http_request: HttpRequest) -> bool:
        return http_request.type in (*LINES_TYPES, CSV)

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        lines = self._checked(self._lines(http_request))
        items = [item for line in lines for item in line.items]
        if not items:
            raise BadRequest("The body has no lines; send a request in each.")
        return ParsedRequest(http_request, items, context=lines)

    def response(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        default = JSON if parsed.http_request.type == CSV else LINES_TYPES[0]
        remaining, by_line = iter(results), []
        for line in parsed.context:
            own = list(islice(remaining, len(line.items)))
            by_line.append(own if line.is_list else own[0])
        columns = () if parsed.http_request.explains else self.model.task.wire.result_columns
        return format_results(by_line, preferred_type(parsed.http_request, default), columns)

    def _checked(self, lines: Iterable[Line]) -> list[Line]:
        """Return lines, which are read one by one until they have too many items."""
        checked: list[Line] = []
        remaining = self.model.limits.max_rows
        for line in lines:
            remaining -= len(line.items)
            if remaining < 0:
                raise self._too_many_items()
            checked.append(line)
        return checked

    def _lines(self, http_request: HttpRequest) -> Iterator[Line]:
        text = (http_request.text or "").removeprefix("\ufeff")
        if http_request.type == CSV:
            return (Line([row]) for row in self._rows(text))
        max_values = http_request.limits.max_values
        self._check_lines(text, max_values)
        return (
            self._line_or_error(line[0], max_values, http_request.explains)
            for line in LINE.finditer(text)
        )

    def _check_lines(self, text: str, max_values: int) -> None:
        """Refuse a body with too many lines or values, before any is built."""
        max_rows = self.model.limits.max_rows
        if sum(1 for _ in islice(LINE.finditer(text), max_rows + 1)) > max_rows:
            raise self._too_many_items()
        counted = 0
        for line in LINE.finditer(text):
            # A line that is nested too deep is not built, and gets an error.
            with suppress(BadRequest):
                counted = check_json_size(line[0], "The body", max_values, counted)

    def _too_many_items(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"The body has more items than the {self.model.limits.max_rows} that this model"
            " takes a request; send them in parts."
        )

    def _line_or_error(self, text: str, max_values: int, explains: bool) -> Line:
        line = attempt(self._line, text, max_values, explains)
        return Line([line]) if isinstance(line, RequestError) else line

    def _line(self, text: str, max_values: int, explains: bool) -> Line:
        item = _without_stream(parse_json(text, "The line", max_values))
        inputs = self._list_of_inputs(item)
        if inputs is None:
            return Line([self._request(item, explains)])
        self.check_count(len(inputs), "inputs")
        requests = [self._request({**item, "inputs": each}, explains) for each in inputs]
        return Line([replace(request, is_batch_item=True) for request in requests], is_list=True)

    def _list_of_inputs(self, item: Any) -> list[Any] | None:
        """Return the list of inputs in a line's item; None where it has none."""
        inputs = item.get("inputs") if isinstance(item, dict) else None
        return list(inputs) if inputs is not None and self.is_list(inputs) else None

    def _request(self, item: Any, explains: bool) -> Request:
        return Request(
            *read_item(item, self.model.task.wire.input_columns, "line", explains=explains)
        )

    def _rows(self, text: str) -> Iterator[Request | RequestError]:
        columns, max_characters = (
            self.model.task.wire.input_columns,
            self.model.limits.max_characters,
        )
        # A quote in a text is two in a table, and each text has a quote at both ends and a comma.
        rows = read_csv(text, max(map(len, columns)) * (2 * max_characters + 3))
        first = list(islice(rows, 1))
        if first and (header := _header(first[0], columns)):
            first, columns = [], [header]
        return (attempt(_row_request, row, columns) for row in chain(first, rows))


def _without_stream(item: Any) -> Any:
    """Return a line's item without `stream`, which has to be false."""
    if not isinstance(item, dict):
        return item
    if read_stream(item):
        raise Unprocessable(
            "The line asks for a stream, and lines are answered whole; leave it out."
        )
    return {name: value for name, value in item.items() if name != "stream"}


def _row_request(row: list[str] | BadRequest, columns: Sequence[Columns]) -> Request:
    if isinstance(row, BadRequest):
        raise row
    return Request(from_columns(row, columns, "The line"), is_batch_item=True)


def _header(row: list[str] | BadRequest, columns: Sequence[Columns]) -> Columns | None:
    """Return the columns that the first row of a table names, if it is a header.

    Raises:
        BadRequest: it is a header with other columns, whose row would be read as texts.
    """
    if isinstance(row, BadRequest):
        return None
    names = tuple(COLUMN_ALIASES.get(cell.strip(), cell.strip()) for cell in row)
    if sorted(names) in map(sorted, columns):
        return names
    is_like_one = len(names) > 1 and all(map(str.isidentifier, names))
    if is_like_one and not set(names).isdisjoint(chain(*columns)):
        found = quote(",".join(row))
        raise BadRequest(f"The header of the table is {found}; send {named(columns)}.")
    return None


class _TableLines:
    """The lines of a table for `csv.reader`, which reads one row from one or more lines."""

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

    def __iter__(self) -> _TableLines:
        return self

    def __next__(self) -> str:
        line = TABLE_LINE.match(self._text, self._end)
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
        max_row: the maximum number of characters of a row, quotes included.

    Raises:
        RequestTooLarge: a row is longer; where the next one begins is not known.
    """
    lines = _TableLines(text, max_row)
    reader = csv.reader(lines, strict=True)
    while lines.start_row():
        try:
            row = next(reader)
        except csv.Error as error:
            yield BadRequest(f"Line {lines.number} is not CSV: {error}.")
        else:
            yield row
