"""Responses of several results in the format of the Accept header: JSON Lines, CSV or JSON."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Any

from ..http.request import HttpRequest, preferred
from ..http.response import JSON, HttpResponse, encode_json
from ..http.streams import json_line

LINES_TYPES = (
    "application/jsonlines",
    "application/jsonl",
    "application/x-ndjson",
    "application/ndjson",
    "application/x-jsonlines",
)
CSV = "text/csv"
ANYTHING = "*/*"


def preferred_type(http_request: HttpRequest, default: str) -> str:
    """Return the content type of the response that the Accept header prefers."""
    found = preferred(http_request.header("accept"), (*LINES_TYPES, CSV, JSON, ANYTHING))
    return default if found in ("", ANYTHING) else found


def preferred_file(http_request: HttpRequest, content_types: Sequence[str]) -> str:
    """Return the type of a file that the Accept header prefers to JSON; empty if it does not."""
    family = f"{content_types[0].partition('/')[0]}/*"
    known = (*content_types, family, *LINES_TYPES, CSV, JSON, ANYTHING)
    found = preferred(http_request.header("accept"), known)
    if found == family:
        return content_types[0]
    return found if found in content_types else ""


def format_results(
    results: Sequence[Any], content_type: str, columns: Sequence[str]
) -> HttpResponse:
    """Return results as a line or a row for each, or as a list.

    Args:
        columns: the keys of a result that are columns in CSV; none for one column of JSON.
    """
    if content_type == CSV:
        table = write_csv([_row(result, columns) for result in results])
        return HttpResponse(table, content_type=f"{CSV}; charset=utf-8")
    if content_type in LINES_TYPES:
        return HttpResponse(b"".join(map(json_line, results)), content_type=content_type)
    return HttpResponse(encode_json(list(results)))


def _row(result: Any, columns: Sequence[str]) -> list[Any]:
    """Return the columns of a result, of several results the best; else one column of JSON."""
    best = result[0] if isinstance(result, list) and result else result
    has_columns = columns and isinstance(best, dict) and best.keys() >= set(columns)
    return [best[name] for name in columns] if has_columns else [result]


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
