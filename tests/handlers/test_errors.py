from __future__ import annotations

from handlers.errors import summarize


def test_the_summary_of_an_error_is_one_line_of_limited_length() -> None:
    assert summarize(ValueError("one\n  two\tthree")) == "one two three"
    assert summarize(ValueError("x" * 999), 9) == "x" * 9


def test_an_error_without_a_message_is_reported_by_its_name() -> None:
    assert summarize(RuntimeError()) == "RuntimeError"
