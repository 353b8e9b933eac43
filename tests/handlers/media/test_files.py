"""Files in requests: how they may come, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from handlers.errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from handlers.media.files import MediaFiles
from handlers.media.images import IMAGE

LIMIT = 100_000
FILES = MediaFiles(IMAGE, LIMIT, [], 1)


def test_bytes_come_as_they_are_in_base64_or_in_a_data_uri() -> None:
    file = b"\x89PNG and more"
    text = base64.b64encode(file).decode()
    lines = "\n".join(text[start : start + 60] for start in range(0, len(text), 60))
    uri = f"data:image/png;base64,{text}"
    for value in (file, bytearray(file), text, lines, uri, {"image": uri}, {"b64": text}):
        assert FILES.file(value, "inputs") == file


@pytest.mark.parametrize(
    ("value", "error", "fragment"),
    [
        ("https://example.com/cat.png", Unprocessable, "is a URL, and this model fetches none"),
        ("file:///etc/passwd", Unprocessable, "is a URL, and this model fetches none"),
        ("data:image/png,abc", BadRequest, "data URI without base64"),
        ("not base64!", BadRequest, "is not in base64"),
        ("", BadRequest, "is empty"),
        (b"", BadRequest, "is empty"),
        (5, BadRequest, "must be an image"),
        ({"url": "x"}, BadRequest, "must be an image"),
        (b"x" * (LIMIT + 1), RequestTooLarge, "100,001 bytes"),
    ],
)
def test_what_is_no_image_is_refused(value: Any, error: type[RequestError], fragment: str) -> None:
    with pytest.raises(error, match=fragment):
        FILES.file(value, "inputs")
