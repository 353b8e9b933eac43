"""SageMaker's JSON Lines and CSV: a request a line, and its result in the same place.

    application/jsonlines   {"inputs": …, "parameters": {…}}, "a text", {"features": [a text]} …
    text/csv                a text; a text and its pair; a question and its context

The Accept header chooses between JSON Lines, CSV and a JSON list. SageMaker's `/invocations` is
TorchServe's route to the one model of a server; every other route takes these bodies as well.

https://docs.aws.amazon.com/sagemaker/latest/dg/cdf-inference.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handlers.errors import BadRequest, RequestError, Unprocessable, attempt
from handlers.http.csv import rows_of
from handlers.http.decoding import json_of
from handlers.http.request import HttpRequest
from handlers.http.response import JSON, HttpResponse
from handlers.protocols.base import ItemProtocol, is_chat
from handlers.protocols.items import Layout, from_columns, layouts_of, read_item, streams
from handlers.protocols.result_formats import CSV, LINES, format_results, preferred_type
from handlers.schemas.request import Request

# Other names that a header line may have for a text.
HEADINGS = {"inputs": "text", "prompt": "text"}


@dataclass(frozen=True)
class Line:
    """What a line asks: one thing, or with a list of inputs several."""

    items: Sequence[Request | RequestError]
    several: bool = False

    def told(self, results: Iterator[Any]) -> Any:
        """Return what answers it, out of the results of all lines."""
        own = [next(results) for _ in self.items]
        return own if self.several else own[0]


class Protocol(ItemProtocol):
    """A line of JSON is answered as if it came alone, a row of a table as an item of a list."""

    def recognises(self, http_request: HttpRequest) -> bool:
        return http_request.type in (*LINES, CSV)

    def items(self, http_request: HttpRequest) -> list[Request | RequestError]:
        items = [item for line in self._by_line(http_request) for item in line.items]
        if not items:
            raise BadRequest("The body has no lines; send a request in each.")
        self.check_count(len(items), "The body")
        return items

    def reply(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> Any:
        return list(results)

    def lay_out(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> HttpResponse:
        kind = preferred_type(http_request, usual=JSON if http_request.type == CSV else LINES[0])
        told = iter(results)
        own = [line.told(told) for line in self._by_line(http_request)]
        return format_results(own, kind, self.model.mode, explains=http_request.explains)

    def _by_line(self, http_request: HttpRequest) -> list[Line]:
        text = (http_request.text or "").removeprefix("\ufeff")
        if http_request.type == CSV:
            return [Line([row]) for row in self._rows(text)]
        # Not splitlines: JSON may hold other ends of lines than this one.
        lines = [
            attempt(self._asked, line, http_request) for line in text.split("\n") if line.strip()
        ]
        return [Line([line]) if isinstance(line, RequestError) else line for line in lines]

    def _asked(self, line: str, http_request: HttpRequest) -> Line:
        item = _without_stream(json_of(line, "The line"))
        several = _list_in(item)
        if several is None:
            return Line([self._request(item, http_request)])
        self.check_count(len(several), "inputs")
        parts = [self._request({**item, "inputs": each}, http_request) for each in several]
        return Line([replace(part, alone=False) for part in parts], several=True)

    def _request(self, item: Any, http_request: HttpRequest) -> Request:
        return Request(*read_item(item, self.model.mode, "line", explains=http_request.explains))

    def _rows(self, text: str) -> list[Request | RequestError]:
        rows, layouts = list(rows_of(text)), layouts_of(self.model.mode)
        if rows and (header := _header(rows[0], layouts)):
            rows, layouts = rows[1:], [header]
        return [attempt(_read, row, layouts) for row in rows]


def _list_in(item: Any) -> list[Any] | None:
    """Return the list of inputs that a line's item has, if it has one."""
    inputs = item.get("inputs") if isinstance(item, dict) else None
    return inputs if isinstance(inputs, list) and not is_chat(inputs) else None


def _without_stream(item: Any) -> Any:
    """Return a line's item without what says that its answer comes whole."""
    if not isinstance(item, dict):
        return item
    if streams(item):
        raise Unprocessable(
            "The line asks for a stream, and lines are answered whole; leave it out."
        )
    return {name: value for name, value in item.items() if name != "stream"}


def _read(row: list[str] | BadRequest, layouts: Sequence[Layout]) -> Request:
    if isinstance(row, BadRequest):
        raise row
    return Request(from_columns(row, layouts, "The line"), alone=False)


def _header(row: list[str] | BadRequest, layouts: Sequence[Layout]) -> Layout | None:
    """Return the layout that a table's first row names, if it does."""
    if isinstance(row, BadRequest):
        return None
    names = tuple(HEADINGS.get(cell.strip(), cell.strip()) for cell in row)
    return names if sorted(names) in map(sorted, layouts) else None
