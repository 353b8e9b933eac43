"""Models that answer in parts, as an `AsyncModel` does, behind the application."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from hf_serve.hosts.asgi.backend import Answer, Backend, ModelRequest
from hf_serve.hosts.async_model import Part
from hf_serve.hosts.http import STREAMS, in_time, to_row
from hf_serve.hosts.routes import query_fields


class PartsBackend(Backend):
    """Answers requests by models in this process, or in processes of the same machines.

    Args:
        answer_seconds: how long a response, or its next part, may take.
    """

    def __init__(self, answer_seconds: float) -> None:
        self._answer_seconds = answer_seconds

    @abstractmethod
    async def parts(
        self, model: str, version: str, row: Mapping[str, Any], headers: Mapping[str, Any]
    ) -> AsyncGenerator[Part, None]:
        """Return the parts of the response of a model; arguments as of `AsyncModel.answer`.

        Raises:
            RequestError: it is not answered, also where the parts are read.
        """

    @asynccontextmanager
    async def answer(self, request: ModelRequest) -> AsyncIterator[Answer]:
        route = request.route
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        row, types = await to_row(request.body, given.get("content-type", ""))
        row = {**query_fields(request.address), **row}
        headers = {**given, **types, **route.headers}
        async with aclosing(await self.parts(route.model, route.version, row, headers)) as parts:
            timed = in_time(parts, self._answer_seconds)
            status, content_type, own, first = await anext(timed)
            named = {"content-type": content_type, **own} if content_type else own
            bodies = _bodies(first, timed)
            if not content_type.startswith(STREAMS):
                whole = b"".join([body async for body in bodies])
                named["content-length"] = str(len(whole))
                bodies = _bodies(whole)
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]
            yield Answer(status, encoded, bodies)

    async def metrics(self) -> bytes:
        return b""  # They are in the registry of the process of the model.


async def _bodies(first: bytes, parts: AsyncIterator[Part] | None = None) -> AsyncIterator[bytes]:
    yield first
    if parts is not None:
        async for *_, body in parts:
            yield body
