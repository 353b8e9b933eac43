"""The response of a model as parts, and as a response of Starlette."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from handlers.errors import Overloaded, RequestError
from handlers.http.response import encode_json
from handlers.http.streams import is_stream
from hosts.served_model import Part


async def in_time(parts: AsyncIterator[Part], seconds: float) -> AsyncIterator[Part]:
    """Yield the parts of a response, each of which has to be ready in so many seconds.

    Raises:
        Overloaded: a part takes longer.
    """
    while True:
        try:
            async with asyncio.timeout(seconds):
                part = await anext(parts)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Overloaded(
                f"The model did not answer in {seconds:g} s; send the request again."
            ) from None
        yield part


async def to_response(parts: AsyncIterator[Part]) -> Response:
    """Return a response that sends parts as they come if it is a stream, otherwise together."""
    status, content_type, headers, first = await anext(parts)
    if is_stream(content_type):
        return StreamingResponse(_bodies(first, parts), status, headers, media_type=content_type)
    whole = b"".join([each async for each in _bodies(first, parts)])
    return Response(whole, status, headers, media_type=content_type or None)


def error_response(error: RequestError) -> Response:
    """Return the response to a request that fails, in TorchServe's shape."""
    body = encode_json(error.whole_body())
    return Response(body, error.status, dict(error.headers), media_type="application/json")


async def _bodies(first: bytes, parts: AsyncIterator[Part]) -> AsyncIterator[bytes]:
    yield first
    async for _, _, _, body in parts:
        yield body
