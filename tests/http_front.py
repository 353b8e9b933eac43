"""An HTTP server with TorchServe's routes to models in this process, for clients.

It has `/predictions/<model>` with a version and a path behind it. A worker behind TorchServe gets
the same rows and headers; `tests/e2e` has tests with a real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from tests.serving import Served

# The name of a field of a form, and its content type.
FIELD = re.compile(r'(?i)(?<![a-z])(name|content-type)[=:] *("[^"]*"|[^\r\n]+)')


@contextmanager
def front(models: Mapping[str, Served]) -> Iterator[str]:
    """Serve models by name; yields the URL before their names."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            url = urlsplit(self.path)
            _, _, name, *rest = url.path.split("/")
            told = {"url_path": "/".join(rest[1:]), "x-http-method-override": self.command}
            headers = {**dict(self.headers.items()), **told}
            body = self.rfile.read(size)
            row, described = _row(body, self.headers.get("Content-Type", ""))
            http_request = HttpRequest(
                {**dict(parse_qsl(url.query)), **row}, {**headers, **described}
            )
            with lock:
                (answer,) = models[name].dispatcher.dispatch([http_request], Meter())
            self.send_response(answer.status)
            for header, value in answer.headers.items():
                self.send_header(header, value)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_DELETE = do_POST  # noqa: N815

        def log_message(self, *_arguments: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/predictions"
        server.shutdown()


def _row(body: bytes, content_type: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the row of a body, and the descriptions of its fields; a form has one for each."""
    boundary = re.search(r'multipart/form-data;.*boundary="?([^";]+)', content_type)
    if not boundary:
        return ({"body": body} if body else {}), {}
    row, described = {}, {}
    for part in body.split(b"--" + boundary[1].encode())[1:-1]:
        head, _, value = part.partition(b"\r\n\r\n")
        names = {key.lower(): text for key, text in FIELD.findall(head.decode())}
        name = names.pop("name").strip('"')
        row[name] = value.removesuffix(b"\r\n")
        described[name] = {"content-type": names["content-type"]} if names else {}
    return row, described
