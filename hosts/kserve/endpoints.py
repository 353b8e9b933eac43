"""Routes of models, which come before the SDK's own: the same protocols as behind TorchServe.

In addition to TorchServe's routes (`hosts/routes.py`) there are `/openai/v1/<path>`, where `model`
of the body names the model, and the SDK's `GET /v2/models/<model>`, described by the model itself.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handlers.errors import RequestError
from handlers.http.limits import BodyLimits
from handlers.http.request import HttpRequest
from handlers.protocols.openai.errors import ModelNotFound, error_body
from hosts.http import error_response, in_time, read_body, to_response, to_row
from hosts.kserve.hosted_model import HostedModel
from hosts.routes import (
    METHODS,
    MethodNotAllowed,
    UnknownModel,
    UnknownRoute,
    find_route,
)

MODEL_PATHS = (
    "/predictions/{rest:path}",
    "/explanations/{rest:path}",
    "/v1/models/{model}:predict",
    "/v1/models/{model}:explain",
    "/v2/models/{model}/infer",
    "/v2/models/{model}/explain",
    "/v2/models/{model}/versions/{version}/infer",
    "/v2/models/{model}/versions/{version}/explain",
    "/models/{model}/invoke",
    "/invocations",
)
DESCRIBED_PATHS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
READY_PATH = "/v2/models/{model}/versions/{version}/ready"
# The SDK would let any client unload a model.
REPOSITORY_PATH = "/v2/repository/{rest:path}"
OPENAI_PATH = "/openai/{path:path}"
OPENAI_MODELS = "v1/models"
EVERY_METHOD = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BODY_SECONDS = 60.0
ANSWER_SECONDS = 600.0

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoints:
    """Answers requests to models."""

    models: Mapping[str, HostedModel]
    limits: BodyLimits

    def routes(self) -> list[Route]:
        """Return the routes, in the order in which they are tried."""
        endpoints: list[tuple[str, Endpoint]] = [
            *((path, self.ask_model) for path in MODEL_PATHS),
            *((path, self.describe) for path in DESCRIBED_PATHS),
            (READY_PATH, self.ready),
            (OPENAI_PATH, self.ask_openai),
            (REPOSITORY_PATH, self.refuse),
            ("/ping", self.ping),
        ]
        return [
            Route(path, _with_errors(endpoint), methods=list(EVERY_METHOD))
            for path, endpoint in endpoints
        ]

    async def ask_model(self, request: Request) -> Response:
        """Answer a request to the model that its path names."""
        _require_method(request)
        route = find_route(request.url.path, request.query_params)
        model = self._model(route.model)
        row, types = await self._read(request, model)
        headers = {**request.headers, **types, **route.headers}
        return await _answer(model, row, headers, route.version)

    async def describe(self, request: Request) -> Response:
        """Answer a request for the inputs and outputs of a model."""
        model = self._model(request.path_params["model"])
        headers = {**request.headers, "url_path": request.url.path.strip("/")}
        return await _answer(model, {}, headers, request.path_params.get("version", ""))

    async def ready(self, request: Request) -> Response:
        """Answer whether a version of a model answers; the SDK knows no versions."""
        model = self._model(request.path_params["model"])
        if not model.is_healthy:
            return JSONResponse({"name": model.name, "ready": False}, 503)
        return await self.describe(request)

    async def ask_openai(self, request: Request) -> Response:
        """Answer a request of OpenAI's clients to the model that its body names."""
        _require_method(request)
        path = request.path_params["path"]
        if path == OPENAI_MODELS:
            return JSONResponse({"object": "list", "data": await self._openai_models(request)})
        try:
            return await self._ask_openai(request, path)
        except RequestError as error:
            return JSONResponse(error_body(error), error.status, dict(error.headers))

    async def refuse(self, _request: Request) -> Response:
        """Refuse to load or to unload a model."""
        raise UnknownRoute

    async def ping(self, _request: Request) -> Response:
        """Answer as TorchServe's `/ping`."""
        answers = [model.is_healthy for model in self.models.values()]
        if all(answers):
            return JSONResponse({"status": "Healthy"})
        return JSONResponse({"status": "Partial Healthy" if any(answers) else "Unhealthy"}, 500)

    async def _ask_openai(self, request: Request, path: str) -> Response:
        row, types = await self._read(request)
        headers = {**request.headers, **types, "url_path": path}
        name = path.removeprefix(f"{OPENAI_MODELS}/") if path.startswith(OPENAI_MODELS) else None
        model = self._openai_model(name or self._named(HttpRequest(row, headers)))
        model.require_space()
        return await _answer(model, row, headers, "")

    async def _openai_models(self, request: Request) -> list[Any]:
        """Return the entries of all models, and of their adapters."""
        entries: list[Any] = []
        for model in self.models.values():
            headers = {**request.headers, "url_path": OPENAI_MODELS}
            response = await _answer(model, {}, headers, "")
            if response.status_code == 200:
                entries += json.loads(bytes(response.body))["data"]
        return entries

    def _openai_model(self, name: Any) -> HostedModel:
        """Return the model that an OpenAI request names: by its name, or the name of an adapter.

        Where there is one model only, it takes any name, as below its own path.

        Raises:
            ModelNotFound: there are several, and none of them has the name.
        """
        if len(self.models) == 1:
            return next(iter(self.models.values()))
        found = (
            model
            for model in self.models.values()
            if name == model.name or (isinstance(name, str) and name in model.adapters)
        )
        if model := next(found, None):
            return model
        raise ModelNotFound(str(name or ""), sorted(self.models))

    def _named(self, http_request: HttpRequest) -> Any:
        """Return the `model` of a body; the only model reads its body itself."""
        if len(self.models) == 1:
            return None
        content = HttpRequest(http_request.row, http_request.headers, limits=self.limits).content
        return content.get("model") if isinstance(content, dict) else None

    def _model(self, name: str) -> HostedModel:
        """Return a model; without a name, the only one.

        Raises:
            UnknownModel: no model has this name, or there are several and the request names none.
        """
        if not name and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UnknownModel(name)
        return self.models[name]

    async def _read(
        self, request: Request, model: HostedModel | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of a body; none is read for a model whose queue is full."""
        if model:
            model.require_space()
        body = await read_body(request, self.limits.max_request_bytes, BODY_SECONDS)
        return await to_row(body, request.headers.get("content-type", ""))


async def _answer(
    model: HostedModel, row: Mapping[str, Any], headers: Mapping[str, Any], version: str
) -> Response:
    return await to_response(in_time(model.answer(row, headers, version), ANSWER_SECONDS))


def _require_method(request: Request) -> None:
    if request.method not in METHODS:
        raise MethodNotAllowed


def _with_errors(endpoint: Endpoint) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RequestError as error:
            return error_response(error)

    return answer
