"""Requests of Starlette as rows of TorchServe, and parts of responses as its responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from hf_serve.handlers.errors import BadRequest, Overloaded, RequestError, RequestTooLarge
from hf_serve.hosts.async_model import Part

try:
    from hf_serve.handlers.http.request import distinct_names
except ImportError:  # version 0.2.0 and before, which read the last field of a name

    def distinct_names(names: Iterable[str]) -> Iterator[str]:  # noqa: D103 - as in handlers
        return iter(names)


# The content types of responses in parts; older archives have another `handlers.http.streams`.
STREAMS = ("text/event-stream", "application/x-ndjson")
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
MAX_FIELDS = 1000
# The character set that has a character for each byte.
EACH_BYTE = "latin-1"


class RequestTimeout(RequestError):
    """The body did not arrive in time."""

    status, kind = 408, "RequestTimeoutException"


async def read_body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """Return the body of a request.

    Raises:
        RequestTooLarge: it has more bytes than allowed.
        RequestTimeout: it does not arrive in this time.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(seconds):
            return await _read(request, max_bytes)
    except TimeoutError:
        raise RequestTimeout(
            f"The body did not arrive in {seconds:g} s; send the request again."
        ) from None
    except ClientDisconnect:
        raise BadRequest("The client has gone.") from None


async def to_row(body: bytes, content_type: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a body, and the content type of each field of a form.

    Their values are bytes, as TorchServe passes them. A repeated field gets another name.

    Raises:
        BadRequest: a form cannot be read.
    """
    kind = content_type.split(";", maxsplit=1)[0].strip().lower()
    if kind == FORM:
        return _form(body), {}
    if kind == MULTIPART:
        return await _multipart(body, content_type)
    return {"body": body}, {}


async def _read(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(body)


def _too_large(max_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"The body has more bytes than the server's max_request_size of {max_bytes:,}"
        "; send the request in parts."
    )


def _form(body: bytes) -> dict[str, Any]:
    """Return the fields of a form; a text without `=` is no field, as with TorchServe."""
    pairs = b"&".join(pair for pair in body.split(b"&") if b"=" in pair).decode(EACH_BYTE)
    try:
        found = parse_qsl(
            pairs, keep_blank_values=True, encoding=EACH_BYTE, max_num_fields=MAX_FIELDS
        )
    except ValueError:
        raise BadRequest(f"The form has more than {MAX_FIELDS} fields.") from None
    names = distinct_names(_name(name) for name, _ in found)
    return dict(zip(names, (value.encode(EACH_BYTE) for _, value in found), strict=True))


async def _multipart(body: bytes, content_type: str) -> tuple[dict[str, Any], dict[str, Any]]:
    async def stream() -> AsyncIterator[bytes]:
        yield body

    # By default, what is not UTF-8 would be read as Latin-1.
    headers = Headers({"content-type": f"{content_type}; charset={EACH_BYTE}"})
    parser = MultiPartParser(
        headers,
        stream(),
        max_files=MAX_FIELDS,
        max_fields=MAX_FIELDS,
        max_part_size=len(body),
    )
    row, types = dict[str, Any](), dict[str, Any]()
    try:
        form = await parser.parse()
    except (MultiPartException, HTTPException, KeyError, UnicodeDecodeError):
        raise BadRequest("The body is no multipart form; check its boundary.") from None
    try:
        items = form.multi_items()
        names = distinct_names(_name(name) for name, _ in items)
        for name, (_, value) in zip(names, items, strict=True):
            if isinstance(value, str):
                row[name] = value.encode(EACH_BYTE)
            else:
                row[name] = await value.read()
                types[name] = {"content-type": value.content_type or ""}
    finally:
        await form.close()
    return row, types


def _name(name: str) -> str:
    """Return the name of a field, of which each byte was read as a character."""
    return name.encode(EACH_BYTE).decode("utf-8", "replace")


async def in_time(parts: AsyncIterator[Part], seconds: float) -> AsyncIterator[Part]:
    """Yield the parts of a response, each of which has to be ready within a time limit.

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
