from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
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
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_messages_are_read_as_torchserve_reads_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    batches = [[b"a", b"b" * 200_000, b""], [b"c"]]
    content = b"".join(map(message, batches))
    Thread(target=theirs.sendall, args=(content * 2,), daemon=True).start()
    expected = [otf_message_handler.retrieve_msg(ours) for _ in batches]
    monkeypatch.setattr(otf_message_handler, "_retrieve_buffer", BlockReader().read)
    assert [otf_message_handler.retrieve_msg(ours) for _ in batches] == expected


def test_the_worker_ends_with_torchserve(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(SystemExit) as ended:
        BlockReader().read(ours, 1)
    assert ended.value.code == 0
