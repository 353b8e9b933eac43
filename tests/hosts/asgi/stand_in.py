"""Back ends without archives, and requests to an application in front of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import uvicorn

from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.hosts.asgi.access import ApiKeys
from hf_serve.hosts.asgi.backend import Answer, Backend, ModelEntry, ModelRequest, State
from hf_serve.hosts.asgi.server import ServerSettings, create_application
from hf_serve.hosts.http import to_row
from hf_serve.scripts.serving.ports import free_ports
from tests.serving import Served
from tests.waiting import wait_for

SECONDS = 30
EMBEDDER = ModelEntry("minilm", "1.0", mode="sentence_embedding")
WRITER = ModelEntry("gpt", "2.0", mode="text_generation", adapters=("poems",), max_model_len=512)
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
    return send(create_application(backend, settings), method, path, **request)


def send(application: Any, method: str, path: str, **request: Any) -> httpx.Response:
    """Return the response of an application."""

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **request)

    return asyncio.run(run())


@contextmanager
def running(application: Any, lifespan: Any = "off") -> Iterator[str]:
    """Serve an application in a thread, and yield its URL."""
    port = free_ports().inference
    config = uvicorn.Config(
        application, port=port, log_config=None, lifespan=lifespan, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(SECONDS)


class ServedBackend(Recorder):
    """Answers with models of this process, and streams what they send in parts."""

    def __init__(self, models: Mapping[str, Served], others: Sequence[ModelEntry] = ()) -> None:
        ready = [
            ModelEntry(name, "1.0", mode=each.config.handler.mode) for name, each in models.items()
        ]
        super().__init__([*ready, *others])
        self._models = models
        self._dispatchers = {name: Dispatcher(each.engine, name) for name, each in models.items()}

    @asynccontextmanager
    async def answer(self, request: ModelRequest) -> AsyncIterator[Answer]:
        self.requests.append(request)
        queue, loop = asyncio.Queue[HttpResponse | None](), asyncio.get_running_loop()
        given = {name.decode(): value.decode() for name, value in request.headers}
        row, types = await to_row(request.body, given.get("content-type", ""))
        headers: dict[str, Any] = {**given, **types, **request.route.headers}

        def put(response: HttpResponse | None) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, response)

        def run() -> None:
            http_request = HttpRequest(row, headers, put)
            put(self._dispatchers[request.route.model].dispatch([http_request], Meter())[0])
            put(None)

        running = loop.run_in_executor(None, run)
        first = await queue.get()
        assert first is not None

        async def bodies() -> AsyncIterator[bytes]:
            yield first.body
            while part := await queue.get():
                yield part.body

        yield Answer(first.status, [(b"content-type", first.content_type.encode())], bodies())
        await running
