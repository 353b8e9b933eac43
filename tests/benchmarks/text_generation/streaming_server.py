"""A server that streams tokens as this kit does, and keeps what it received."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StreamingServer(ThreadingHTTPServer):
    """Generates `missing` tokens less than asked for; responds with 503 if `is_full`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.missing, self.is_full = 0, False
        self.received: list[dict[str, Any]] = []
        self.hung_up = threading.Semaphore(0)
        self.running, self.most_running = 0, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the requests that run at the same time."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            yield
        finally:
            self.running -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StreamingServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.received.append(body)
        with self.server.counted():
            if self.server.is_full:
                self._send(503, b'{"message": "The queue is full."}')
            elif body.get("stream"):
                self._stream(body["parameters"]["max_new_tokens"] - self.server.missing)
            else:
                tokens = body["parameters"]["max_new_tokens"] - self.server.missing
                self._send(200, json.dumps([_answer(tokens)]).encode())

    def do_GET(self) -> None:
        self._send(200, b'# TYPE hf_running_texts gauge\nhf_running_texts{Level="Model"} 2.0\n')

    def log_message(self, *_: object) -> None:
        pass

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, tokens: int) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for index in range(1, tokens + 1):
                details = _answer(tokens) if index == tokens else {"details": None}
                self._chunk(f"data:{json.dumps({'index': index, **details})}\n\n".encode())
            self._chunk(b"")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            self.server.hung_up.release()

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))


def _answer(tokens: int) -> dict[str, Any]:
    return {"generated_text": "…", "details": {"generated_tokens": tokens}}


@contextmanager
def streaming_server() -> Iterator[StreamingServer]:
    with StreamingServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
