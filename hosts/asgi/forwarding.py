"""Passing requests on to another server, and responses as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
from yarl import URL

from hf_serve.handlers.errors import Overloaded
from hf_serve.hosts.asgi.backend import Answer, Headers

# What belongs to a connection, and what the client of this process writes itself.
HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
        *(b"transfer-encoding", b"host", b"expect"),
    }
)
LENGTH = b"content-length"
CONNECT_SECONDS = 30.0
# Larger bodies are written in parts, between which other requests take their turn.
LARGE_BODY = 1 << 20
TextHeaders = list[tuple[str, str]]


def open_client(connector: aiohttp.BaseConnector, answer_seconds: float) -> aiohttp.ClientSession:
    """Return a client that changes nothing of requests and responses.

    Args:
        answer_seconds: how long a response, or its next part, may take.
    """
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(
            total=None, connect=CONNECT_SECONDS, sock_read=answer_seconds
        ),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )


def without(headers: Headers, names: Collection[bytes]) -> TextHeaders:
    """Return headers without those that belong to the connection, and without further ones."""
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name not in HOP_BY_HOP and name != LENGTH and name not in names
    ]


@asynccontextmanager
async def forward(
    client: aiohttp.ClientSession,
    method: str,
    url: str,
    headers: TextHeaders,
    body: bytes,
    server: str,
) -> AsyncIterator[Answer]:
    """Send a request, and yield the response.

    Args:
        server: what errors call the server.

    Raises:
        Overloaded: it does not answer, or not in time.
    """
    try:
        async with await _send(client, method, URL(url, encoded=True), headers, body) as response:
            own = [each for each in response.raw_headers if each[0].lower() not in HOP_BY_HOP]
            yield Answer(response.status, own, response.content.iter_any())
    except TimeoutError:
        seconds = client.timeout.sock_read
        raise Overloaded(
            f"The model did not answer in {seconds:g} s; send the request again."
        ) from None
    except aiohttp.ClientError:
        raise Overloaded(f"{server} cannot be reached; send the request again.") from None


async def _send(
    client: aiohttp.ClientSession, method: str, url: URL, headers: TextHeaders, body: bytes
) -> aiohttp.ClientResponse:
    """Send a request, once more where the server closes the connection before it answers.

    TorchServe closes those that are kept when it stops; a prediction may be asked for twice.
    """
    for last in (False, True):
        try:
            return await client.request(
                method,
                url,
                data=body if len(body) < LARGE_BODY else BytesIO(body),
                headers=headers,
                allow_redirects=False,
            )
        except aiohttp.ServerDisconnectedError:
            if last:
                raise
    raise AssertionError("the second error is raised")
