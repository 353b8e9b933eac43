"""The ASGI application: every protocol at its usual address, for all models of a back end."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from hf_serve.handlers import __version__
from hf_serve.handlers.errors import Overloaded, RequestError, classify
from hf_serve.hosts.asgi import documentation, page
from hf_serve.hosts.asgi.access import ApiKeys
from hf_serve.hosts.asgi.addresses import BY_PATH, STORED_RESPONSE, Api, api_of
from hf_serve.hosts.asgi.backend import Answer, Backend, ModelEntry, ModelRequest, State
from hf_serve.hosts.asgi.errors import UnknownModel, error_response, in_shape_of
from hf_serve.hosts.asgi.metrics import HttpMetrics
from hf_serve.hosts.asgi.model_choice import ABOUT_MODEL, MAX_AGE, ModelChoice
from hf_serve.hosts.http import read_body
from hf_serve.hosts.routes import METHODS, PING, MethodNotAllowed, Route

# Addresses that tell whether the server answers, which need no key.
HEALTH = frozenset({PING, "/health", "/v2/health/live", "/v2/health/ready"})
# The path below a model at which it describes itself.
DESCRIBE = "describe"
DESCRIBED = re.compile(r"/models/(?P<model>[^/]+)")
# OpenAI's paths as KServe has them.
KSERVES_OPENAI = "/openai/v1/"
BODY_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    """Settings of the application.

    Attributes:
        max_request_bytes: the limit of a body.
        keys: the keys, one of which a request must have; without one, any request is answered.
        aliases: further paths, and the paths that they stand for.
        body_seconds: how long a body may take to arrive.
    """

    max_request_bytes: int
    keys: ApiKeys = field(default_factory=ApiKeys)
    aliases: Mapping[str, str] = field(default_factory=dict)
    body_seconds: float = BODY_SECONDS


class Application:
    """Answers requests by a back end.

    Args:
        backend: what answers requests to models.
        settings: its settings.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend, self._settings = backend, settings
        self._choice = ModelChoice(backend)
        self._metrics = HttpMetrics()
        self._pages: Mapping[str, Callable[[], Awaitable[Response]]] = {
            "/": self._root,
            "/docs": self._docs,
            "/openapi.json": self._openapi,
            "/metrics": self._prometheus,
            "/models": self._model_names,
            "/v1/models": self._openai_models,
            "/v2": self._server_metadata,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as servers call it."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(self._without_alias(scope), receive, send)

    def _without_alias(self, scope: Scope) -> Scope:
        path = scope["path"]
        if path.startswith(KSERVES_OPENAI):
            alias = path.removeprefix("/openai")
        else:
            alias = self._settings.aliases.get(path, path)
        return (
            scope if alias == path else {**scope, "path": alias, "raw_path": quote(alias).encode()}
        )

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._backend.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._backend.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        request = Request(scope, receive)
        api = api_of(request.scope["path"])
        try:
            await self._answer_or_raise(request, api, observed)
        except Exception as error:
            if status:  # A part was sent, so the connection ends without the last one.
                raise
            known = error if isinstance(error, RequestError) else classify(error)
            await error_response(api, known)(scope, receive, observed)
        finally:
            self._metrics.observe(api, status, time.monotonic() - began)

    async def _answer_or_raise(self, request: Request, api: Api, send: Send) -> None:
        path = request.scope["path"]
        is_page = path == "/" and request.method in ("GET", "HEAD")
        # The page has nothing of a model, and sends the key that a person enters there.
        if path not in HEALTH and not is_page:
            self._settings.keys.check(request.headers)
        if request.method in ("GET", "HEAD") and (response := await self._about(request)):
            await response(request.scope, request.receive, send)
            return
        asked = await self._model_request(request)
        model, began = asked.route.model, time.monotonic()
        with self._metrics.in_progress(model):
            async with _until_client_goes(request.receive), self._backend.answer(asked) as answer:
                is_torchserves = asked.is_native and api == Api.TORCHSERVE
                if answer.status >= 400 and not is_torchserves:
                    answer = await _in_shape(api, answer)
                await _send(answer, send)
                if answer.status != HTTPStatus.NOT_FOUND:
                    self._metrics.observe_model(model, time.monotonic() - began)

    async def _model_request(self, request: Request) -> ModelRequest:
        """Return the request to a model that a request is.

        Raises:
            RequestError: it names no model that is served, or its address does not exist.
        """
        path = request.scope["path"]
        address = BY_PATH.get(path)
        if request.method not in (allowed := self._methods(path)):
            raise MethodNotAllowed(allowed)
        headers = self._settings.keys.without_key(request.scope["headers"])
        is_native = False
        if stored := STORED_RESPONSE.fullmatch(path):
            route = await self._choice.of_stored_response(request, stored["id"])
            # The handler gets no query and no method of a request.
            body = json.dumps(dict(request.query_params)).encode()
            headers = [each for each in headers if each[0].lower() != b"content-type"]
            headers.append((b"content-type", b"application/json"))
        elif address is None:
            route, is_native = await self._choice.of_path(request)
            body = await self._body(request)
        else:
            body = await self._body(request)
            route = await self._choice.of_address(request, address, body)
        query = request.scope["query_string"]
        raw = request.scope.get("raw_path") or quote(path).encode()
        target = (raw + b"?" + query if query else raw).decode("latin-1")
        return ModelRequest(request.method, target, headers, body, route, is_native)

    def _methods(self, path: str) -> list[str]:
        """Return the methods that an address takes."""
        about = ["GET", "HEAD"] if path in HEALTH or path in self._pages else []
        if path in BY_PATH:
            return [*about, BY_PATH[path].method]
        if stored := STORED_RESPONSE.fullmatch(path):
            return {"/input_items": ["GET"], "/cancel": ["POST"]}.get(
                stored["part"], ["GET", "DELETE"]
            )
        return about or list(METHODS)

    async def _body(self, request: Request) -> bytes:
        limits = self._settings
        return await read_body(request, limits.max_request_bytes, limits.body_seconds)

    async def _about(self, request: Request) -> Response | None:
        """Return the response about the server or its models; None where a model answers."""
        path = request.scope["path"]
        if path in HEALTH:
            return await self._health(path)
        if own := self._pages.get(path):
            return await own()
        if found := DESCRIBED.fullmatch(path):
            is_customized = request.query_params.get("customized") == "true"
            return await self._described(found["model"], is_customized=is_customized)
        if (found := ABOUT_MODEL.fullmatch(path)) and (found["named"] or found["ready"]):
            return await self._not_ready(found["named"] or found["model"])
        return None

    async def _root(self) -> Response:
        return HTMLResponse(page.HTML, headers=page.HEADERS)

    async def _docs(self) -> Response:
        return HTMLResponse(documentation.page(await self._backend.models(MAX_AGE)))

    async def _openapi(self) -> Response:
        return JSONResponse(documentation.openapi(await self._backend.models(MAX_AGE)))

    async def _prometheus(self) -> Response:
        text = self._metrics.text() + await self._backend.metrics()
        return Response(text, media_type="text/plain")

    async def _server_metadata(self) -> Response:
        return JSONResponse({"name": "torchserve", "version": __version__, "extensions": []})

    async def _openai_models(self) -> Response:
        return JSONResponse(_openai_list(await self._backend.described_models()))

    async def _model_names(self) -> Response:
        names = sorted(await self._backend.models(MAX_AGE))
        return JSONResponse({"models": [{"modelName": name, "modelUrl": name} for name in names]})

    async def _described(self, name: str, *, is_customized: bool) -> Response:
        """Return what is known of a model, and its own description if requested.

        TorchServe is not asked with `customized=true`: it repeats that call of a model with
        `continuousBatching` without end.
        """
        models = await self._backend.models(MAX_AGE)
        if name not in models:
            raise UnknownModel(name, sorted(models))
        each = models[name]
        described = {
            "modelName": name,
            "modelVersion": each.version,
            "status": str(each.state),
            **_error(each),
        }
        if is_customized and each.state == State.READY:
            described |= await self._description(each)
        return JSONResponse([described])

    async def _description(self, entry: ModelEntry) -> dict[str, Any]:
        """Return the description of a model by itself; an older archive has none.

        Raises:
            Overloaded: the model does not answer now.
        """
        route = Route(entry.name, entry.version, {"url_path": DESCRIBE})
        path = f"/predictions/{quote(entry.name, '')}/{quote(entry.version, '')}/{DESCRIBE}"
        asked = ModelRequest("GET", path, [], b"", route, is_native=False)
        async with self._backend.answer(asked) as answer:
            body = b"".join([part async for part in answer.parts])
        if answer.status >= 500:
            raise Overloaded(f"{entry.name} does not describe itself now; send the request again.")
        return {"customizedMetadata": json.loads(body)} if answer.status == 200 else {}

    async def _not_ready(self, name: str) -> Response | None:
        """Return that a model does not answer; None where the model itself says that it does.

        A model that its next request loads counts as ready, and is not loaded for that.
        """
        entry = (await self._backend.models(MAX_AGE)).get(name)
        if entry is None or entry.state == State.READY:
            return None
        if entry.state == State.UNLOADED:
            return JSONResponse({"name": name, "ready": True, **_listed(entry)})
        return JSONResponse({"name": name, "ready": False, **_error(entry)}, 503)

    async def _health(self, path: str) -> Response:
        if path == "/v2/health/live":
            is_live = not self._backend.needs_restart
            return JSONResponse({"live": is_live}, 200 if is_live else 503)
        models = (await self._backend.models(MAX_AGE)).values()
        # A model that did not load is in the list of models with its error; the others are served.
        states = [
            each.state in (State.READY, State.UNLOADED)
            for each in models
            if each.state != State.FAILED
        ]
        is_ready = bool(states) and all(states)
        if path == PING:
            status = "Healthy" if is_ready else "Partial Healthy" if any(states) else "Unhealthy"
            return JSONResponse({"status": status}, 200 if is_ready else 500)
        if path == "/health":
            return Response(status_code=200 if is_ready else 503)
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)


def _openai_list(models: Mapping[str, ModelEntry]) -> dict[str, Any]:
    """Return OpenAI's list of models, in which each model has its state and its last error too.

    `models` has the names, as KServe's V1 lists them at the same path.
    """
    data = []
    for each in models.values():
        own = _listed(each)
        data.append({**own, **_error(each)})
        data += [{**own, "id": name, "root": name, "parent": each.name} for name in each.adapters]
    return {"object": "list", "data": data, "models": sorted(models)}


def _listed(entry: ModelEntry) -> dict[str, Any]:
    """Return a model as OpenAI's list has it, with its state and its mode."""
    own = {"object": "model", "created": 0, "owned_by": "torchserve", "state": str(entry.state)}
    of_vllm = {"root": entry.name, "max_model_len": entry.max_model_len}
    mode = {"mode": entry.mode} if entry.mode else {}
    return {"id": entry.name, **own, **of_vllm, **mode}


def _error(entry: ModelEntry) -> dict[str, str]:
    return {"error": entry.error} if entry.error else {}


@asynccontextmanager
async def _until_client_goes(receive: Receive) -> AsyncIterator[None]:
    """Leave the block when the client closes its connection."""
    task = asyncio.current_task()
    has_gone = False

    async def watch() -> None:
        nonlocal has_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        has_gone = True
        if task:
            task.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not has_gone:
            raise
        if task:
            task.uncancel()
    finally:
        watching.cancel()


async def _in_shape(api: Api, answer: Answer) -> Answer:
    """Return an error whose body has the shape of an API."""
    body = in_shape_of(api, answer.status, b"".join([part async for part in answer.parts]))
    headers = [each for each in answer.headers if each[0].lower() != b"content-length"]
    headers.append((b"content-length", str(len(body)).encode()))

    async def parts() -> AsyncIterator[bytes]:
        yield body

    return Answer(answer.status, headers, parts())


async def _send(answer: Answer, send: Send) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    async for part in answer.parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
