from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from ts.protocol import otf_message_handler
from ts.service import Service

from handlers.http.request import HttpRequest
from handlers.torchserve.message_reader import (
    DECODE_VARIABLE,
    MAX_KEPT,
    MessageReader,
    read_messages,
)

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
def read(decode: str, monkeypatch: pytest.MonkeyPatch) -> Read:
    """TorchServe's function as the handler changes it."""
    for name in ("_retrieve_buffer", "_retrieve_inference_msg"):
        monkeypatch.setattr(otf_message_handler, name, getattr(otf_message_handler, name))
    read_messages()
    return otf_message_handler.retrieve_msg


def read_all(read: Read, messages: Sequence[bytes]) -> list[Any]:
    """Return the requests of messages that are sent at once."""
    with closing_pair() as (ours, theirs):
        Thread(target=theirs.sendall, args=(b"".join(messages),), daemon=True).start()
        found = [read(ours) for _ in messages]
    assert all(command == b"I" for command, _ in found)
    return [requests for _, requests in found]


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
    assert isinstance(found[0]["parameters"][0]["value"], str if decode == "true" else bytearray)


def test_fields_of_one_name_are_all_in_the_row(read: Read) -> None:
    """TorchServe's worker makes a dictionary of them."""
    fields = [(b"image", b"image/png", b"1"), (b"a", b"", b"x"), (b"image", b"image/gif", b"2")]
    parameters = b"".join(field(part) for each in fields for part in each)
    content = field(b"%036d" % 1) + END + parameters + END
    (found,) = read_all(read, [message(content)])
    headers, (row,), _ = Service.retrieve_data_for_inference(found)
    request = HttpRequest(row, headers[0]._request_header, reads_media=True)
    assert request.content == {"image": [b"1", b"2"], "a": "x"}


def test_the_pieces_of_the_connection_make_no_difference() -> None:
    messages = [message(request(1, b"ab"), request(2, b"c")), message(request(1, b"ab"))]
    expected = [[parsed(1, b"ab"), parsed(2, b"c")], [parsed(1, b"ab")]]
    for size in range(1, 24):
        reader = MessageReader(size)
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


def test_a_body_that_is_changed_is_another_one_in_the_next_message(read: Read) -> None:
    content = message(request(1, b"ab"))
    with closing_pair() as (ours, theirs):
        for _ in range(2):
            theirs.sendall(content)
            _, (found,) = read(ours)
            assert found == parsed(1, b"ab")
            found["parameters"][0]["value"] += b"c"


def test_short_requests_of_the_last_message_are_not_taken_apart_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, (ours, theirs) = MessageReader(), pair
    taken = list[int]()
    take = reader._take

    def count(connection: socket.socket, length: int) -> bytes:
        taken.append(length)
        return take(connection, length)

    monkeypatch.setattr(reader, "_take", count)
    fields = {}
    for name, content in {
        "first": [request(1, b"a"), request(2, b"b" * MAX_KEPT)],
        "again": [request(1, b"a"), request(2, b"b" * MAX_KEPT)],
        "another": [request(3, b"c")],
        "the first again": [request(1, b"a")],
    }.items():
        theirs.sendall(message(*content))
        reader.read(ours, 1)
        taken.clear()
        reader.read_requests(ours)
        fields[name] = len(taken)
    assert fields["again"] < fields["first"]
    assert fields["the first again"] == fields["another"]


def test_each_field_of_a_request_is_read_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fields of a form that comes in many pieces."""
    reader, (ours, theirs) = MessageReader(block=64), pair
    parameter = field(b"a") + field(b"") + field(b"1")
    content = field(b"%036d" % 1) + END + parameter * 500 + END + END
    theirs.sendall(content)
    received = list[int]()
    receive = reader._receive

    def count(connection: socket.socket, length: int) -> None:
        receive(connection, length)
        received.append(len(reader._block))

    monkeypatch.setattr(reader, "_receive", count)
    (found,) = reader.read_requests(ours)
    assert len(found["parameters"]) == 500
    assert sum(received) < 2 * len(content)


@pytest.mark.parametrize("length", [0, 20])
def test_the_worker_ends_with_torchserve(length: int) -> None:
    for read_on in (lambda ours: MessageReader().read(ours, 30), MessageReader().read_requests):
        with closing_pair() as (ours, theirs):
            theirs.sendall(request(1, b"a")[:length])
            theirs.close()
            with pytest.raises(SystemExit) as ended:
                read_on(ours)
        assert ended.value.code == 0
