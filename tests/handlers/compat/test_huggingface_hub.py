from __future__ import annotations

import io
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from hf_serve.handlers.compat.huggingface_hub import resume_download

CONTENT = bytes(range(256)) * 8


class Hub(BaseHTTPRequestHandler):
    ranges: list[str | None] = []

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.ranges.append(asked)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(CONTENT) - first))
        self.end_headers()
        self.wfile.write(CONTENT[first:])

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        Hub.ranges.clear()
        yield f"http://127.0.0.1:{server.server_port}/file"
        server.shutdown()


@pytest.mark.parametrize("before", [0, 1000])
def test_a_download_goes_on_after_what_the_file_has(url: str, before: int) -> None:
    file = io.BytesIO()
    file.write(CONTENT[:before])
    resume_download(url, file, headers={}, size=len(CONTENT), name="file")
    assert file.getvalue() == CONTENT
    assert Hub.ranges == [f"bytes={before}-" if before else None]


def test_a_file_of_another_size_is_an_error_without_a_number(url: str) -> None:
    with pytest.raises(OSError, match="size") as raised:
        resume_download(url, io.BytesIO(), headers={}, size=len(CONTENT) + 1, name="file")
    assert raised.value.errno is None
