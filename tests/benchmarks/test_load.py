from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from benchmarks.load import Load, WrkNotFound, load

OUTPUT = """\
Running 8s test @ http://127.0.0.1:8080/predictions/model
  32 threads and 32 connections
Requests/sec:      1.23
{"seconds": 2.0, "errors": {"connect": 0, "read": 1, "write": 0, "status": 3, "timeout": 2}, \
"microseconds": [4000, 1000, 2000, 3000, 5000, 4000, 1000, 2000, 5000], "responses": 5}
"""


class Server(ThreadingHTTPServer):
    """Responds with 503 to `no` and 200 otherwise; records bodies and content types."""

    daemon_threads = True

    def __init__(self, seconds: float, *, closes: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seconds, self.closes = seconds, closes
        self.received: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.received.append((body, self.headers["content-type"]))
        time.sleep(self.server.seconds)
        self.send_response(503 if body == "no" else 200)
        self.send_header("content-length", "0")
        self.end_headers()
        self.close_connection = self.server.closes

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(seconds: float = 0.0, *, closes: bool = False) -> Iterator[Server]:
    with Server(seconds, closes=closes) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_the_output_of_wrk_is_parsed() -> None:
    found = Load.read(OUTPUT)
    assert found is not None
    assert (found.requests, found.errors, found.seconds) == (5, 6, 2.0)
    assert found.rows_per_second == 2.5
    assert (found.p50_ms, found.p90_ms, found.p99_ms) == pytest.approx((3.0, 5.0, 5.0))


def test_bodies_are_sent_in_rotation_and_errors_do_not_count_as_throughput() -> None:
    bodies = ['{"inputs": "a \\"café\\"\\n\\\\ and 北京"}', "no", "plain"]
    with serving() as server:
        found = load(server.url, bodies, "text/x-own", clients=3, seconds=1)
    sent = [body for body, _ in server.received]
    assert set(sent) == set(bodies)
    assert {kind for _, kind in server.received} == {"text/x-own"}
    for body in bodies:
        assert sent.count(body) == pytest.approx(len(sent) / 3, rel=0.1, abs=3)
    rejected = sent.count("no")
    # The server may count requests that wrk no longer waits for.
    assert found.errors == pytest.approx(rejected, abs=3)
    assert found.requests == pytest.approx(len(sent) - rejected, abs=3)
    assert 0 < found.p50_ms <= found.p90_ms <= found.p99_ms
    assert found.rows_per_second == pytest.approx(found.requests / found.seconds)


def test_the_error_for_a_missing_wrk_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(WrkNotFound, match="apt-get install wrk"):
        load("http://127.0.0.1:1/", ["a"], "text/plain", clients=1, seconds=1)
