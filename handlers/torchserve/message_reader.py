"""Reading TorchServe's messages."""

from __future__ import annotations

import logging
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from socket import socket
from typing import Any

from ts.protocol import otf_message_handler

from handlers.http.repeated_fields import distinct_names

logger = logging.getLogger(__name__)

BLOCK = 1 << 16
LARGE_BLOCK = 1 << 20
LENGTH = struct.Struct("!i")
# The length of an id of TorchServe, and that length itself.
ID_FIELD = 40
# Longer requests are not kept, because of their memory.
MAX_KEPT = 1 << 14


# TorchServe's worker decodes bodies of JSON and of text unless it is `false`.
DECODE_VARIABLE = "TS_DECODE_INPUT_REQUEST"
READ_REQUESTS = otf_message_handler._retrieve_inference_msg


def read_messages() -> None:
    """Have TorchServe's worker read all further messages in blocks."""
    reader = MessageReader()
    otf_message_handler._retrieve_buffer = reader.read
    decodes = os.environ.get(DECODE_VARIABLE) != "false"
    read = READ_REQUESTS if decodes else reader.read_requests
    otf_message_handler._retrieve_inference_msg = partial(with_distinct_names, read)


@dataclass(frozen=True)
class _Request:
    """A request of a message.

    Attributes:
        number: its id.
        headers: its headers, as TorchServe's worker has them.
        parameters: name, content type and value of each field of its body.
    """

    number: bytes
    headers: list[dict[str, bytes]]
    parameters: list[tuple[str, str, bytes]]

    def as_mapping(self) -> dict[str, Any]:
        """Return the request as TorchServe's worker has it, with bodies that may be changed."""
        parameters = [
            {"name": name, "contentType": content_type, "value": bytearray(value)}
            for name, content_type, value in self.parameters
        ]
        return {"requestId": self.number, "headers": self.headers, "parameters": parameters}


def with_distinct_names(
    read: Callable[[socket], list[dict[str, Any]]], connection: socket
) -> list[dict[str, Any]]:
    """Return the requests that a function reads, with a name of its own for each field."""
    requests = read(connection)
    for request in requests:
        fields = request["parameters"]
        for field, name in zip(
            fields, distinct_names(field["name"] for field in fields), strict=True
        ):
            field["name"] = name
    return requests


class MessageReader:
    """Reads from a connection what there is, and takes the messages of TorchServe apart.

    TorchServe's worker reads each number and each header with a system call of its own: 1,200 calls
    and 4.6 ms for 32 requests, while other threads of the worker take turns with it. A request that
    was in the message before, as with `continuousBatching`, is not taken apart again. Source of the
    format: `ts/protocol/otf_message_handler.py` of TorchServe 0.12.

    Its methods end the process where TorchServe has gone, as those of TorchServe's worker do.

    Args:
        block: how many bytes are received at once where fewer are needed.
    """

    def __init__(self, block: int = BLOCK) -> None:
        self._block_size = block
        self._connection: socket | None = None
        self._block, self._position = b"", 0
        # The bytes of requests of the last message and the requests, by the fields of their ids.
        self._kept: dict[bytes, tuple[bytes, _Request]] = {}

    def read(self, connection: socket, length: int) -> bytearray:
        """Return so many bytes."""
        self._change_to(connection)
        data = bytearray(self._take(connection, length))
        self._drop_what_is_read()
        return data

    def read_requests(self, connection: socket) -> list[dict[str, Any]]:
        """Return the requests of a message, with bodies that are not decoded."""
        self._change_to(connection)
        requests = []
        kept: dict[bytes, tuple[bytes, _Request]] = {}
        while request := self._known_request(kept) or self._new_request(connection, kept):
            requests.append(request.as_mapping())
        self._kept = kept
        self._drop_what_is_read()
        return requests

    def _known_request(self, kept: dict[bytes, tuple[bytes, _Request]]) -> _Request | None:
        """Return the next request if the last message had it with the same bytes, and keep it."""
        key = self._block[self._position : self._position + ID_FIELD]
        content, request = self._kept.get(key, (b"", None))
        if request is None or not self._block.startswith(content, self._position):
            return None
        self._position += len(content)
        kept[key] = content, request
        return request

    def _new_request(
        self, connection: socket, kept: dict[bytes, tuple[bytes, _Request]]
    ) -> _Request | None:
        """Return the next request, None after the last one, and keep it if it is short."""
        block, start = self._block, self._position
        number = self._field(connection)
        if number is None:
            return None
        headers, parameters = [], []
        while (name := self._field(connection)) is not None:
            headers.append({"name": name, "value": self._field(connection) or b""})
        while (name := self._field(connection)) is not None:
            content_type = self._field(connection) or b""
            value = self._field(connection) or b""
            parameters.append((name.decode(), content_type.decode(), value))
        request = _Request(number, headers, parameters)
        # Where a part of it had to be received, its first bytes are gone.
        if self._block is block and self._position - start <= MAX_KEPT:
            kept[block[start : start + ID_FIELD]] = block[start : self._position], request
        return request

    def _field(self, connection: socket) -> bytes | None:
        """Return the next field, or None for the end of a list."""
        (length,) = LENGTH.unpack(self._take(connection, LENGTH.size))
        return None if length < 0 else self._take(connection, length)

    def _take(self, connection: socket, length: int) -> bytes:
        if self._position + length > len(self._block):
            self._receive(connection, length)
        start = self._position
        self._position += length
        return self._block[start : self._position]

    def _receive(self, connection: socket, count: int) -> None:
        """Receive until so many bytes are unread."""
        blocks = [self._block[self._position :]]
        missing = count - len(blocks[0])
        while missing > 0:
            block = connection.recv(max(self._block_size, min(missing, LARGE_BLOCK)))
            if not block:
                logger.info("Frontend disconnected.")
                sys.exit(0)
            blocks.append(block)
            missing -= len(block)
        self._block, self._position = b"".join(blocks), 0

    def _change_to(self, connection: socket) -> None:
        if connection is not self._connection:
            self._connection, self._block, self._position = connection, b"", 0

    def _drop_what_is_read(self) -> None:
        """Give back the memory of large bodies."""
        if self._position == len(self._block):
            self._block, self._position = b"", 0
