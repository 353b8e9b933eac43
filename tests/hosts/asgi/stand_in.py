"""A back end without models, and requests to an application in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from hf_serve.hosts.asgi.access import ApiKeys
from hf_serve.hosts.asgi.backend import Answer, Backend, ModelEntry, ModelRequest, State
from hf_serve.hosts.asgi.server import ServerSettings, create_application

EMBEDDER = ModelEntry("minilm", "1.0", mode="sentence_embedding")
WRITER = ModelEntry("gpt", "2.0", mode="text_generation", adapters=("poems",))
BROKEN = ModelEntry("broken", state=State.FAILED, error="handler.mode is wrong")


class Recorder(Backend):
    """Keeps the requests to models, and answers each with `answer`."""

    def __init__(self, entries: Sequence[ModelEntry] = (EMBEDDER, WRITER)) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.requests: list[ModelRequest] = []
        self.reply = Answer(200, [(b"content-type", b"application/json")], parts(b"{}"))

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def models(self, max_age: float) -> Mapping[str, ModelEntry]:
        return self.entries

    async def described_models(self) -> Mapping[str, ModelEntry]:
        return self.entries

    @asynccontextmanager
    async def answer(self, request: ModelRequest) -> AsyncIterator[Answer]:
        self.requests.append(request)
        yield self.reply

    async def metrics(self) -> bytes:
        return b"own_total 1\n"


async def parts(*bodies: bytes) -> AsyncIterator[bytes]:
    for body in bodies:
        yield body


def ask(
    backend: Backend,
    method: str,
    path: str,
    *,
    keys: Sequence[str] = (),
    origins: Sequence[str] = (),
    max_request_bytes: int = 1000,
    **request: Any,
) -> httpx.Response:
    """Return the response of an application to a request."""
    settings = ServerSettings("", 1, 1, max_request_bytes, ApiKeys(keys), origins)
    transport = httpx.ASGITransport(create_application(backend, settings))

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **request)

    return asyncio.run(send())
