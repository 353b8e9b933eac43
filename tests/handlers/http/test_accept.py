from __future__ import annotations

import pytest

from hf_serve.handlers.http.request import preferred

KNOWN = ("text/html", "application/json")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json", "application/json"),
        ("text/html;q=0.2, application/json;q=0.8", "application/json"),
        ("text/html;q=1, application/json;q=0.9", "text/html"),
        ("text/html;level=1;q=0.1, application/json;q=0.5", "application/json"),
        ("text/html, application/json", "text/html"),
        ("text/html;q=0", ""),
        ("text/html;q=nonsense, application/json;q=0.9", "text/html"),
        ("image/png", ""),
        ("", ""),
    ],
)
def test_the_known_type_of_the_highest_quality_is_preferred(accept: str, expected: str) -> None:
    assert preferred(accept, KNOWN) == expected
