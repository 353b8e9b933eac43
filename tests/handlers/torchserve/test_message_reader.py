from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from ts.protocol import otf_message_handler

from handlers.torchserve.message_reader import DECODE_VARIABLE, MAX_KEPT, MessageReader

END = struct.pack("!i", -1)
Pair = tuple[socket.socket, socket.socket]
Read = Callable[[socket.socket], tuple[bytes, Any]]


def field(content: bytes) -> bytes:
    return struct.pack("!i", len(content)) + content


def request(number: int, body: bytes, content_type: bytes = b"image/png") -> bytes:
    header = field(b"Host") + field(b"h") + field(b"empty") + field(b"")
    parameter = field(b"body") + field(content_type) + field(body)
    return field(b"%036d" % number) + header + END + parameter + END


def message(*requests: bytes) -> bytes:
    return b"I" + b"".join(requests) + END


def parsed(number: int, body: Any, content_type: str = "image/png") -> dict[str, Any]:
    """Return a request as TorchServe's worker has it."""
    return {
        "requestId": b"%036d" % number,
        "headers": [{"name": b"Host", "value": b"h"}, {"name": b"empty", "value": b""}],
        "parameters": [{"name": "body", "contentType": content_type, "value": body}],
    }


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing_pair() as (ours, theirs):
        yield ours, theirs


@contextmanager
def closing_pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture(params=["false", "true"])
def decode(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The value of decode_input_request in config.properties."""
    monkeypatch.setenv(DECODE_VARIABLE, request.param)
    return str(request.param)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """TorchServe's function with a reader that is installed."""
    for name in ("_retrieve_buffer", "_retrieve_inference_msg"):
        monkeypatch.setattr(otf_message_handler, name, getattr(otf_message_handler, name))
    MessageReader().install()
    return otf_message_handler.retrieve_msg


def read_all(read: Read, messages: Sequence[bytes], step: int = 1 << 20) -> list[Any]:
    """Return the requests of messages that are sent in pieces of some bytes."""
    with closing_pair() as (ours, theirs):
        content = b"".join(messages)
        pieces = [content[start : start + step] for start in range(0, len(content), step)]
        Thread(target=lambda: list(map(theirs.sendall, pieces)), daemon=True).start()
        found = [read(ours) for _ in messages]
    assert all(command == b"I" for command, _ in found)
    return [requests for _, requests in found]


@pytest.mark.usefixtures("decode")
def test_messages_are_read_as_they_were_sent(read: Read) -> None:
    large = b"b" * 3_000_000
    messages = [message(request(1, b"1"), request(2, large), request(3, b"")), message()]
    expected = [[parsed(1, b"1"), parsed(2, large), parsed(3, b"")], []]
    # A worker has one connection, and a new one begins with nothing unread.
    for _ in range(2):
        assert read_all(read, messages) == expected


def test_a_body_is_decoded_as_torchserve_is_told(decode: str, read: Read) -> None:
    body, kind = "é".encode(), "text/plain"
    (found,) = read_all(read, [message(request(1, body, kind.encode()))])
    assert found == [parsed(1, body.decode() if decode == "true" else body, kind)]


def test_the_pieces_of_the_connection_make_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages = [message(request(1, b"ab"), request(2, b"c")), message(request(1, b"ab"))]
    expected = [[parsed(1, b"ab"), parsed(2, b"c")], [parsed(1, b"ab")]]
    for size in range(1, 24):
        reader = MessageReader()
        monkeypatch.setattr("handlers.torchserve.message_reader.BLOCK", size)
        with closing_pair() as (ours, theirs):
            theirs.sendall(b"".join(messages))
            for requests in expected:
                assert reader.read(ours, 1) == b"I"
                assert reader.read_requests(ours) == requests


@pytest.mark.parametrize("length", [3, 2 * MAX_KEPT])
def test_a_request_that_is_sent_again_may_have_another_body(read: Read, length: int) -> None:
    body, other = b"a" * length, b"b" * length
    messages = [
        message(request(1, body), request(2, body)),
        message(request(2, body), request(1, b""), request(3, other)),
        message(request(1, body), request(2, other)),
    ]
    assert read_all(read, messages) == [
        [parsed(1, body), parsed(2, body)],
        [parsed(2, body), parsed(1, b""), parsed(3, other)],
        [parsed(1, body), parsed(2, other)],
    ]


def test_only_short_requests_of_the_last_message_are_kept(pair: Pair) -> None:
    reader, (ours, theirs) = MessageReader(), pair
    for content in ([request(1, b"a"), request(2, b"b" * MAX_KEPT)], [request(3, b"c")]):
        theirs.sendall(b"".join(content) + END)
        reader.read_requests(ours)
        kept = {entry["requestId"]: content for content, entry in reader._kept.values()}
        assert list(kept.values()) == content[:1]


def test_the_worker_ends_with_torchserve(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(request(1, b"a")[:20])
    theirs.close()
    for end in (
        lambda: MessageReader().read(ours, 30),
        lambda: MessageReader().read_requests(ours),
    ):
        with pytest.raises(SystemExit) as ended:
            end()
        assert ended.value.code == 0
