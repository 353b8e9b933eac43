from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from ts.protocol import otf_message_handler

from handlers.torchserve.block_reader import BlockReader

END = struct.pack("!i", -1)
Pair = tuple[socket.socket, socket.socket]


def field(content: bytes) -> bytes:
    return struct.pack("!i", len(content)) + content


def message(bodies: list[bytes]) -> bytes:
    """Return an inference message with a request for each body."""
    requests = [
        field(b"id") + field(b"Host") + field(b"h") + END + field(b"body") + field(b"") + each + END
        for each in map(field, bodies)
    ]
    return b"I" + b"".join(requests) + END


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing_pair() as (ours, theirs):
        yield ours, theirs


@contextmanager
def closing_pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_messages_are_read_as_they_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otf_message_handler, "_retrieve_buffer", BlockReader().read)
    batches = [[b"a", b"b" * 200_000, b""], [b"c"]]
    # A worker has one connection, and a new one begins with nothing unread.
    for _ in range(2):
        with closing_pair() as (ours, theirs):
            content = b"".join(map(message, batches))
            Thread(target=theirs.sendall, args=(content,), daemon=True).start()
            for bodies in batches:
                command, requests = otf_message_handler.retrieve_msg(ours)
                assert command == b"I"
                values = [request["parameters"][0]["value"] for request in requests]
                assert values == bodies
                assert [request["requestId"] for request in requests] == [b"id"] * len(bodies)
                assert requests[0]["headers"] == [{"name": b"Host", "value": b"h"}]


def test_the_worker_ends_with_torchserve(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(SystemExit) as ended:
        BlockReader().read(ours, 1)
    assert ended.value.code == 0
