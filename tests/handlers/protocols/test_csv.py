"""Reading CSV row by row, and writing it."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

import pytest

from hf_serve.handlers.errors import BadRequest
from hf_serve.handlers.protocols.result_formats import write_csv
from hf_serve.handlers.protocols.sagemaker import read_csv

LONG = "word " * 40_000


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\nc,d\n", [["a", "b"], ["c", "d"]]),
        ("a\r\nb\rc", [["a"], ["b"], ["c"]]),
        ("\na\n\n\nb\n\n", [["a"], ["b"]]),
        ('"a, b","c ""d"" e"', [["a, b", 'c "d" e']]),
        ('"two\nlines",b', [["two\nlines", "b"]]),
        ('said "hi", she', [['said "hi"', " she"]]),
        ("two\u2028lines\n", [["two\u2028lines"]]),
        (LONG, [[LONG]]),
        ('""\n,', [[""], ["", ""]]),
        ("", []),
    ],
)
def test_a_table_has_rows(text: str, rows: Any) -> None:
    assert list(read_csv(text, len(LONG))) == rows


def test_a_row_with_wrong_quotes_affects_no_other_row() -> None:
    first, wrong, last = read_csv('a\n"b" c\nd\n', 9)
    assert (first, last) == (["a"], ["d"])
    assert isinstance(wrong, BadRequest) and str(wrong).startswith("Line 2 is not CSV: ")


def test_a_quote_that_is_never_closed_is_an_error() -> None:
    first, wrong = read_csv('a\n"b\nc\n', 9)
    assert first == ["a"]
    assert str(wrong).startswith("Line 3 is not CSV: ")


def test_written_rows_can_be_read() -> None:
    rows: list[list[Any]] = [['a, "b"\nc', 0.25], ["Zürich 🎉", [{"word": "a, b"}]]]
    text = write_csv(rows).decode()
    assert list(csv.reader(StringIO(text, newline=""), strict=True)) == [
        ['a, "b"\nc', "0.25"],
        ["Zürich 🎉", '[{"word":"a, b"}]'],
    ]


def test_nan_is_not_written() -> None:
    with pytest.raises(ValueError):
        write_csv([["a", float("nan")]])
