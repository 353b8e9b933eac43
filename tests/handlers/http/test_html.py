"""Browsers get HTML, other clients JSON."""

from __future__ import annotations

import pytest

from hf_serve.handlers.http.html import prefers_page


@pytest.mark.parametrize(
    ("accept", "prefers_html"),
    [
        ("text/html", True),
        ("text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("*/*", False),
        ("", False),
        ("application/json", False),
        ("application/json, text/html;q=0.5", False),
        ("text/html;q=oops", True),
    ],
)
def test_a_page_is_sent_only_if_html_is_preferred(accept: str, prefers_html: bool) -> None:
    assert prefers_page(accept) is prefers_html
