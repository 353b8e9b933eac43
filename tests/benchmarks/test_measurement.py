"""Measuring a contender: it is started, measured with `wrk` and stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from benchmarks.contenders.base import Contender
from benchmarks.measurement import Plan, measure
from benchmarks.startup import python_bytes

PLAN = Plan(clients=(2,), seconds=1, warm=1)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class InThisProcess(Contender):
    """A server in a thread of this process."""

    name, precision = "here", "float32"

    def __init__(self, status: int = 200) -> None:
        self._status = status
        self._server: Server | None = None

    def start(self) -> None:
        self._server = Server(self._status)
        Thread(target=self._server.serve_forever, args=(0.05,)).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def url(self) -> str:
        assert self._server
        return f"http://127.0.0.1:{self._server.server_port}/"

    @property
    def leader(self) -> int:
        return os.getpgrp()


@pytest.mark.server
def test_it_measures_a_server_and_stops_it() -> None:
    contender = InThisProcess()
    found = measure(contender, ["a text", "another"], PLAN, None, {})
    assert not contender.is_running
    assert found.first_answer_seconds > 0
    assert found.worker_bytes > 10e6
    assert (found.engine, found.longer) == (None, {})
    assert found.loads.keys() == {2}
    assert found.loads[2].errors == 0
    assert found.loads[2].rows_per_second > 0


FORKING = """
import os, sys
block = bytearray(os.urandom(1)) * (200 << 20)
if os.fork():
    print("forked", flush=True)
sys.stdin.read()
"""


def test_memory_that_processes_share_counts_once() -> None:
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout and process.stdout.readline() == b"forked\n"
        found = python_bytes(process.pid)
        process.communicate()
    assert 200 << 20 < found < 300 << 20
