"""Answers of several results as a client's Accept header asks: JSON Lines, CSV or JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from handlers.http.accept import parse_accept
from handlers.http.csv import table_of
from handlers.http.request import HttpRequest
from handlers.http.response import JSON, HttpResponse, encode_json

LINES = (
    "application/jsonlines",
    "application/jsonl",
    "application/x-ndjson",
    "application/ndjson",
    "application/x-jsonlines",
)
CSV = "text/csv"
ANYTHING = "*/*"
# What a table tells of a result; of several, the best.
TOLD = {
    "sequence_classification": ("label", "score"),
    "question_answering": ("answer", "score"),
    "text_generation": ("generated_text",),
}


def preferred_type(http_request: HttpRequest, usual: str) -> str:
    """Return the type that an answer is to have, as the post's Accept header likes best.

    Args:
        post: what was asked.
        usual: the type where the header likes no known one better.
    """
    liked = preferred(http_request.header("accept"), (*LINES, CSV, JSON, ANYTHING))
    return usual if liked in ("", ANYTHING) else liked


def format_results(results: Sequence[Any], kind: str, mode: str, *, explains: bool) -> HttpResponse:
    """Return results, a line or a row for each, or as a list.

    Args:
        results: what came out, ready for JSON.
        kind: the type of the answer: one of JSON Lines', CSV, or JSON.
        mode: the model's, which decides on a table's columns.
        explains: whether the results are explanations.
    """
    if kind == CSV:
        told = () if explains else TOLD.get(mode, ())
        table = table_of([_row_of(result, told) for result in results])
        return HttpResponse(table, content_type=f"{CSV}; charset=utf-8")
    if kind in LINES:
        lines = b"".join(encode_json(result) + b"\n" for result in results)
        return HttpResponse(lines, content_type=kind)
    return HttpResponse(encode_json(list(results)))


def preferred(accept: str, known: Collection[str]) -> str:
    """Return the known type that an Accept header likes best, of equals the first; else nothing."""
    liked = [
        (kind, quality) for kind, quality in parse_accept(accept) if kind in known and quality > 0
    ]
    return max(liked, key=lambda wish: wish[1], default=("", 0.0))[0]


def _row_of(result: Any, names: Sequence[str]) -> list[Any]:
    """Return what a table tells of a result, or all of it as JSON in one column."""
    best = result[0] if isinstance(result, list) and result else result
    told = names and isinstance(best, dict) and best.keys() >= set(names)
    return [best[name] for name in names] if told else [result]
