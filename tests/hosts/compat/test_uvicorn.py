"""Connections end where clients send or read too slowly, and no others do."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import free_ports, is_free
from tests.waiting import wait_for

pytestmark = pytest.mark.server

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
SECONDS = 60


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server that leaves a client that takes longer than a second."""
    port = free_ports().inference
    command = [sys.executable, "-m", "tests.hosts.compat.limited_server", str(port)]
    process = subprocess.Popen(command, cwd=ROOT)
    wait_for(lambda: not is_free(port))
    yield port
    process.terminate()
    process.wait(SECONDS)


@pytest.fixture
def connection(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        yield connection


def read_to_end(connection: socket.socket) -> bytes:
    read = bytearray()
    with suppress(ConnectionResetError):
        while part := connection.recv(1 << 20):
            read += part
    return bytes(read)


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n", GET[:-2], POST + b"half", GET.replace(b"/ ", b"/a ", 1) + GET[:9]],
    ids=["nothing", "an empty line", "headers", "body", "second request"],
)
def test_a_request_that_does_not_arrive_ends_the_connection(
    connection: socket.socket, sent: bytes
) -> None:
    connection.sendall(sent)
    assert read_to_end(connection).count(b"whole") == sent.count(b"/a")


def test_headers_without_an_end_are_refused(connection: socket.socket) -> None:
    with suppress(ConnectionError):
        connection.sendall(GET[:-2] + b"A: b\r\n" * 20_000)
    assert read_to_end(connection).startswith(b"HTTP/1.1 400 ")


def test_a_response_that_is_not_read_ends_the_connection(connection: socket.socket) -> None:
    connection.sendall(GET.replace(b"/ ", b"/large ", 1))
    time.sleep(3)
    assert len(read_to_end(connection)) < 64 << 20


def test_a_connection_is_kept_between_requests(connection: socket.socket) -> None:
    for _ in range(2):
        connection.sendall(POST)
        connection.sendall(b"0123456789")
        answer = b""
        while not answer.endswith(b"whole"):
            part = connection.recv(65_536)
            assert part
            answer += part
        time.sleep(1.5)
