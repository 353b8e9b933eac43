from __future__ import annotations

import pytest

from handlers.http.response import HttpResponse


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("a sentence", "a sentence"),
        ("a\r\nb: c", "a??b: c"),
        ("Zürich … 🎉", "Z?rich ... ?"),
        ("x" * 301, f"{'x' * 297}..."),
    ],
)
def test_a_header_value_is_one_short_line(value: str, sent: str) -> None:
    assert HttpResponse(b"", headers={"X-A": value}).headers == {"X-A": sent}
