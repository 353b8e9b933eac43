"""Files in requests: how they may come, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from handlers.errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from handlers.media.files import MediaFiles
from handlers.media.images import IMAGE
from tests.sentences import refused

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
    ("value", "error", "facts"),
    [
        ("https://example.com/cat.png", Unprocessable, ["inputs", "URL"]),
        ("file:///etc/passwd", Unprocessable, ["inputs", "URL"]),
        ("data:image/png,abc", BadRequest, ["inputs", "data URI", "base64"]),
        ("not base64!", BadRequest, ["inputs", "base64"]),
        ("", BadRequest, ["inputs"]),
        (b"", BadRequest, ["inputs"]),
        (5, BadRequest, ["inputs", "image"]),
        ({"url": "x"}, BadRequest, ["inputs", "image"]),
        (b"x" * (LIMIT + 1), RequestTooLarge, ["inputs", LIMIT + 1]),
    ],
)
def test_what_is_no_image_is_refused(
    value: Any, error: type[RequestError], facts: list[object]
) -> None:
    with refused(error, *facts):
        FILES.file(value, "inputs")
