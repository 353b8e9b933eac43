"""SageMaker's JSON Lines and CSV: a request a line, and its result in the same place.

    application/jsonlines   {"inputs": …, "parameters": {…}}, "a text", {"features": [a text]} …
    text/csv                a text; a text and its pair; a question and its context

The Accept header chooses between JSON Lines, CSV and a JSON list. SageMaker's `/invocations` is
TorchServe's route to the one model of a server; every other route takes these bodies as well.

https://docs.aws.amazon.com/sagemaker/latest/dg/cdf-inference.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.answer import JSON, Answer, encode
from handlers.attempts import attempt
from handlers.bodies import Post, json_of, text_of
from handlers.errors import BadRequest, RequestError
from handlers.protocols._items import Layout, from_columns, layouts_of, read_item
from handlers.protocols.base import ItemProtocol
from handlers.requests import Request
from handlers.tables import rows_of, table_of

LINES = ("application/jsonlines", "application/jsonl", "application/x-ndjson")
CSV = "text/csv"
# Other names that a header line may have for a text.
HEADINGS = {"inputs": "text", "prompt": "text"}
# What a table tells of a result; of several, the best.
TOLD = {
    "sequence_classification": ("label", "score"),
    "question_answering": ("answer", "score"),
    "text_generation": ("generated_text",),
}


class Protocol(ItemProtocol):
    """A line of JSON is answered as if it came alone, a row of a table as an item of a list."""

    rank = 30

    def recognises(self, post: Post) -> bool:
        return post.type in (*LINES, CSV)

    def items(self, post: Post) -> list[Request | RequestError]:
        text = text_of(post.raw or "").removeprefix("\ufeff")
        items = self._rows(text) if post.type == CSV else self._lines(text, post)
        if not items:
            raise BadRequest("The body has no lines; send a request in each.")
        self.check_count(len(items), "The body")
        return items

    def reply(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Any:
        return list(results)

    def lay_out(self, post: Post, reply: Any) -> Answer:
        kind = _wanted(post)
        if kind == CSV:
            told = () if post.explains else TOLD.get(self.model.mode, ())
            table = table_of([_row_of(result, told) for result in reply])
            return Answer(table, content_type=f"{CSV}; charset=utf-8")
        if kind in LINES:
            lines = b"".join(encode(result) + b"\n" for result in reply)
            return Answer(lines, content_type=kind)
        return super().lay_out(post, reply)

    def _lines(self, text: str, post: Post) -> list[Request | RequestError]:
        # Not splitlines: JSON may hold other ends of lines than this one.
        return [attempt(self._asked, line, post) for line in text.split("\n") if line.strip()]

    def _asked(self, line: str, post: Post) -> Request:
        item = json_of(line, "The line")
        return Request(*read_item(item, self.model.mode, "line", explains=post.explains))

    def _rows(self, text: str) -> list[Request | RequestError]:
        rows, layouts = list(rows_of(text)), layouts_of(self.model.mode)
        if rows and (header := _header(rows[0], layouts)):
            rows, layouts = rows[1:], [header]
        return [attempt(_read, row, layouts) for row in rows]


def _read(row: list[str] | BadRequest, layouts: Sequence[Layout]) -> Request:
    if isinstance(row, BadRequest):
        raise row
    return Request(from_columns(row, layouts, "The line"), alone=False)


def _row_of(result: Any, names: Sequence[str]) -> list[Any]:
    """Return what a table tells of a result, or all of it as JSON in one column."""
    best = result[0] if isinstance(result, list) and result else result
    told = names and isinstance(best, dict) and best.keys() >= set(names)
    return [best[name] for name in names] if told else [result]


def _header(row: list[str] | BadRequest, layouts: Sequence[Layout]) -> Layout | None:
    """Return the layout that a table's first row names, if it does."""
    if isinstance(row, BadRequest):
        return None
    names = tuple(HEADINGS.get(cell.strip(), cell.strip()) for cell in row)
    return names if sorted(names) in map(sorted, layouts) else None


def _wanted(post: Post) -> str:
    """Return the first type in the Accept header that is known, else the body's own or JSON."""
    wishes = (wish.split(";")[0].strip() for wish in post.header("accept").lower().split(","))
    usual = JSON if post.type == CSV else LINES[0]
    return next((wish for wish in wishes if wish in (*LINES, CSV, JSON)), usual)
