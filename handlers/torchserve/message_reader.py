"""Reading TorchServe's messages."""

from __future__ import annotations

import logging
import os
import struct
import sys
from socket import socket
from typing import Any

from ts.protocol import otf_message_handler

logger = logging.getLogger(__name__)

BLOCK = 1 << 16
LARGE_BLOCK = 1 << 20
LENGTH = struct.Struct("!i")
# The length of an id of TorchServe, and that length itself.
ID_FIELD = 40
# Longer requests are not kept, because of their memory.
MAX_KEPT = 1 << 14
# TorchServe decodes bodies of JSON and of text unless it is `false`.
DECODE_VARIABLE = "TS_DECODE_INPUT_REQUEST"
# The bytes of requests and the requests themselves, by the fields of their ids.
_Kept = dict[bytes, tuple[bytes, dict[str, Any]]]


class MessageReader:
    """Reads from a connection what there is, and takes the messages of TorchServe apart.

    TorchServe's worker reads each number and each header with a system call of its own: 1,200 calls
    and 4.6 ms for 32 requests, while other threads of the worker take turns with it. A request that
    was in the message before, as with `continuousBatching`, is not taken apart again. Source of the
    format: `ts/protocol/otf_message_handler.py` of TorchServe 0.12.
    """

    def __init__(self) -> None:
        self._connection: socket | None = None
        self._block, self._position = b"", 0
        self._kept: _Kept = {}

    def install(self) -> None:
        """Have TorchServe's worker read all further messages with this reader."""
        otf_message_handler._retrieve_buffer = self.read
        if os.environ.get(DECODE_VARIABLE) == "false":
            otf_message_handler._retrieve_inference_msg = self.read_requests

    def read(self, connection: socket, length: int) -> bytearray:
        """Return so many bytes, and end the process where TorchServe has gone."""
        self._change_to(connection)
        if len(self._block) - self._position < length:
            self._receive(connection, length)
        start = self._position
        self._position += length
        return bytearray(self._block[start : self._position])

    def read_requests(self, connection: socket) -> list[dict[str, Any]]:
        """Return the requests of a message, and end the process where TorchServe has gone.

        They have the shape that TorchServe's own function returns.
        """
        self._change_to(connection)
        requests = []
        kept: _Kept = {}
        while (request := self._next_request(connection, kept)) is not None:
            requests.append(request)
        self._kept = kept
        if self._position == len(self._block):
            self._block, self._position = b"", 0
        return requests

    def _next_request(self, connection: socket, kept: _Kept) -> dict[str, Any] | None:
        """Return the next request, None after the last one, and keep it if it is short."""
        while True:
            start = self._position
            key = self._block[start : start + ID_FIELD]
            if (known := self._kept.get(key)) and self._block.startswith(known[0], start):
                self._position += len(known[0])
                kept[key] = known
                return known[1]
            try:
                request, self._position = _request(self._block, start)
            except _Incomplete as incomplete:
                self._receive(connection, incomplete.end - start)
                continue
            if request is not None and self._position - start <= MAX_KEPT:
                kept[key] = self._block[start : self._position], request
            return request

    def _change_to(self, connection: socket) -> None:
        if connection is not self._connection:
            self._connection, self._block, self._position = connection, b"", 0

    def _receive(self, connection: socket, count: int) -> None:
        """Receive until so many bytes are unread."""
        blocks = [self._block[self._position :]]
        missing = count - len(blocks[0])
        while missing > 0:
            block = connection.recv(max(BLOCK, min(missing, LARGE_BLOCK)))
            if not block:
                logger.info("Frontend disconnected.")
                sys.exit(0)
            blocks.append(block)
            missing -= len(block)
        self._block, self._position = b"".join(blocks), 0


class _Incomplete(Exception):
    """A block ends within a field.

    Args:
        end: the length that the block has at the end of the field.
    """

    def __init__(self, end: int) -> None:
        self.end = end


def _request(block: bytes, position: int) -> tuple[dict[str, Any] | None, int]:
    """Return the request at a position, None after the last one, and the position after it."""
    number, position = _field(block, position)
    if number is None:
        return None, position
    headers, parameters = [], []
    while True:
        name, position = _field(block, position)
        if name is None:
            break
        value, position = _field(block, position)
        headers.append({"name": name, "value": value or b""})
    while True:
        name, position = _field(block, position)
        if name is None:
            break
        content_type, position = _field(block, position)
        value, position = _field(block, position)
        parameters.append(
            {
                "name": name.decode(),
                "contentType": (content_type or b"").decode(),
                "value": value or b"",
            }
        )
    return {"requestId": number, "headers": headers, "parameters": parameters}, position


def _field(block: bytes, position: int) -> tuple[bytes | None, int]:
    """Return the field at a position, None for the end of a list, and the position after it."""
    start = position + LENGTH.size
    if start > len(block):
        raise _Incomplete(start)
    (length,) = LENGTH.unpack_from(block, position)
    if length < 0:
        return None, start
    end = start + length
    if end > len(block):
        raise _Incomplete(end)
    return block[start:end], end
