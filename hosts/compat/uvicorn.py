"""HTTP connections of uvicorn with limits that it lacks: they end where clients are too slow."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Longer than a body may take, which is answered with status 408.
REQUEST_SECONDS = 90.0
STALLED_SECONDS = 60.0
MAX_HEADER_BYTES = 65_536


class LimitedProtocol(HttpToolsProtocol):
    """A connection of HTTP/1.1 that ends where a client is too slow, or its headers are too long.

    Breaks when uvicorn's protocol calls other methods than these as a request arrives, or has no
    `pipeline` of requests that wait and no `send_400_response`.

    Attributes:
        request_seconds: how long a request may take to arrive, from its first byte on.
        stalled_seconds: how long a client may leave a response unread.
        max_header_bytes: the size of the headers of a request.
    """

    request_seconds = REQUEST_SECONDS
    stalled_seconds = STALLED_SECONDS
    max_header_bytes = MAX_HEADER_BYTES

    _arriving: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _has_headers = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_arriving()
        self._cancel_stalled()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._has_headers:
            self._expect_request()
            self._header_bytes += len(data)
        super().data_received(data)
        if not self._has_headers and self._header_bytes > self.max_header_bytes:
            self.send_400_response(f"The headers have more than {self.max_header_bytes} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_request()

    def on_headers_complete(self) -> None:
        self._has_headers, self._header_bytes = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._has_headers = False
        self._cancel_arriving()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stalled()
        super().resume_writing()

    def _expect_request(self) -> None:
        if self._arriving is None:
            self._arriving = self.loop.call_later(self.request_seconds, self._end_unless_waiting)

    def _end_unless_waiting(self) -> None:
        self._arriving = None
        # Nothing is read while requests of the connection wait for the response to one before them.
        if self.pipeline:
            self._expect_request()
        else:
            self.transport.abort()

    def _cancel_arriving(self) -> None:
        if self._arriving:
            self._arriving.cancel()
            self._arriving = None

    def _cancel_stalled(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None
