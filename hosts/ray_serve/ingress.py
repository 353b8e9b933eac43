"""The deployment of the routes: finds the model of a request, and passes its response on.

A model is an application with the model's name, so one that is deployed later is found, too.
In addition to the routes of models there are `GET /ping`, `/models`, `/models/<model>`,
`/v1/models/<model>`, `/v2/health/live`, `/v2/health/ready`, `/v2/models/<model>` and
`/v2/models/<model>/ready`; a version may follow the model's name in the last two.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from ray import serve
from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.schema import ApplicationStatusOverview
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from handlers.errors import InternalError, Overloaded, RequestError
from hosts.http import error_response, in_time, read_body, to_response, to_row
from hosts.routes import METHODS, MethodNotAllowed, UnknownModel, find_route
from hosts.served_model import Part

MODEL = "Model"
RUNNING = "RUNNING"
STATUS_SECONDS = 1.0
# A model's readiness and, of V2, its inputs and outputs.
ABOUT_MODEL = re.compile(
    r"/v1/models/(?P<named>[^/:]+)"
    r"|/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?(?P<ready>/ready)?"
)
DESCRIBED = re.compile(r"/models/(?P<model>[^/]+)")


class Ingress:
    """Answers every HTTP request of the server."""

    def __init__(self, max_request_bytes: int, body_seconds: float, answer_seconds: float) -> None:
        self._max_request_bytes = max_request_bytes
        self._body_seconds, self._answer_seconds = body_seconds, answer_seconds
        self._handles: dict[str, Any] = {}
        self._models: dict[str, ApplicationStatusOverview] = {}
        self._asked_at = -STATUS_SECONDS
        self._asking = asyncio.Lock()

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        try:
            if request.method == "GET" and (answer := await self._about(request)):
                return answer
            return await self._ask_model(request)
        except RequestError as error:
            return error_response(error)

    async def _ask_model(self, request: Request) -> Response:
        route = find_route(request.url.path, request.query_params)
        if request.method not in METHODS:
            raise MethodNotAllowed
        model = await self._handle(route.model)
        body = await read_body(request, self._max_request_bytes, self._body_seconds)
        row, types = await to_row(body, request.headers.get("content-type", ""))
        parts = self._parts(
            model.answer.remote(row, {**request.headers, **types, **route.headers}, route.version)
        )
        return await to_response(parts)

    async def _parts(self, parts: AsyncIterator[Part]) -> AsyncIterator[Part]:
        """Yield the parts of a model's response, each of which has to be ready in time.

        Raises:
            Overloaded: the queue is full, a part takes too long, or the replica ended.
        """
        try:
            async for part in in_time(parts, self._answer_seconds):
                yield part
        except BackPressureError:
            raise Overloaded("The queue of this model is full; send the request again.") from None
        except (RayActorError, DeploymentUnavailableError, TaskCancelledError):
            raise Overloaded(
                "The replica of this model ended, and another one starts; send the request again."
            ) from None
        except RayTaskError as error:
            raise InternalError(error) from None

    async def _handle(self, name: str) -> Any:
        """Return what sends requests to a model; without a name, to the only one.

        Raises:
            UnknownModel: no model has this name, or there are several and the request names none.
        """
        if name not in self._handles:
            models = await self._known_models()
            name = name or (next(iter(models)) if len(models) == 1 else "")
            if name not in models:
                raise UnknownModel(name)
            handle = serve.get_deployment_handle(MODEL, name)
            self._handles[name] = handle.options(stream=True)
        return self._handles[name]

    async def _about(self, request: Request) -> Response | None:
        """Return the response about the server or about a model; None for another path."""
        path = request.url.path
        if path == "/v2/health/live":
            return JSONResponse({"live": True})
        if path in ("/ping", "/v2/health/ready"):
            return await self._health(path)
        if path == "/models":
            names = await self._known_models()
            models = [{"modelName": name, "modelUrl": name} for name in sorted(names)]
            return JSONResponse({"models": models})
        if found := DESCRIBED.fullmatch(path):
            return JSONResponse(_description(found["model"], await self._model(found["model"])))
        if found := ABOUT_MODEL.fullmatch(path):
            return await self._about_model(request, found)
        return None

    async def _about_model(self, request: Request, found: re.Match[str]) -> Response:
        name, version = found["named"] or found["model"], found["version"] or ""
        is_ready = _replicas(await self._model(name)) > 0
        asks_ready = bool(found["named"] or found["ready"])
        if asks_ready and not (is_ready and version):
            return JSONResponse({"name": name, "ready": is_ready}, 200 if is_ready else 503)
        # A replica knows its version, and describes its model.
        model = await self._handle(name)
        headers = {**request.headers, "url_path": request.url.path.strip("/")}
        return await to_response(self._parts(model.answer.remote({}, headers, version)))

    async def _health(self, path: str) -> Response:
        answers = [_replicas(model) > 0 for model in (await self._known_models()).values()]
        if path == "/v2/health/ready":
            return JSONResponse({"ready": all(answers)}, 200 if all(answers) else 503)
        if all(answers):
            return JSONResponse({"status": "Healthy"})
        return JSONResponse({"status": "Partial Healthy" if any(answers) else "Unhealthy"}, 500)

    async def _model(self, name: str) -> ApplicationStatusOverview:
        models = await self._known_models()
        if name not in models:
            raise UnknownModel(name)
        return models[name]

    async def _known_models(self) -> dict[str, ApplicationStatusOverview]:
        """Return the models, as Ray Serve's controller described them within the last second."""
        async with self._asking:
            if time.monotonic() - self._asked_at > STATUS_SECONDS:
                found = (await asyncio.to_thread(serve.status)).applications
                self._asked_at = time.monotonic()
                self._models = {
                    name: each for name, each in found.items() if MODEL in each.deployments
                }
                self._handles = {
                    name: each for name, each in self._handles.items() if name in self._models
                }
        return self._models


def _replicas(model: ApplicationStatusOverview) -> int:
    """Return how many replicas of a model answer."""
    states = model.deployments[MODEL].replica_states
    return sum(count for state, count in states.items() if state == RUNNING)


def _description(name: str, model: ApplicationStatusOverview) -> list[dict[str, Any]]:
    states = model.deployments[MODEL].replica_states
    replicas = {str(state): count for state, count in states.items()}
    return [{"modelName": name, "status": str(model.status.value), "replicas": replicas}]
