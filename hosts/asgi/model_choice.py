"""Which model answers a request: the one that its path, query, header or body names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request

from hf_serve.handlers.errors import Overloaded, RequestError, RequestTooLarge
from hf_serve.handlers.http.decoding import decode_text, decompress
from hf_serve.hosts.asgi.addresses import ABILITIES, Address, model_of_response
from hf_serve.hosts.asgi.backend import KNOWN_MAX_AGE, Backend, ModelEntry, State
from hf_serve.hosts.asgi.errors import (
    ModelNotNamed,
    NoSuchAbility,
    NoSuchResponse,
    NotLoaded,
    UnknownModel,
)
from hf_serve.hosts.http import FORM, MULTIPART, to_row
from hf_serve.hosts.routes import Route, find_route

# More values of JSON would take more memory than their text.
MAX_VALUES = 1_000_000
MAX_BYTES = 64 << 20
# Requests about one model, which its own protocols answer.
ABOUT_MODEL = re.compile(
    r"/v1/models/(?P<named>[^:]+)"
    r"|/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?(?P<ready>/ready)?"
)
# TorchServe's own address has no version.
OF_VERSION = re.compile(
    r"/v2/models/(?P<model>[^/]+)/versions/(?P<version>[^/]+)/(?:infer|explain)"
)
MODEL_HEADER = "x-model"
METHOD_OVERRIDE = "x-http-method-override"
# A name that is not known is asked for again, and so are the models of a list.
MAX_AGE = 1.0
# Names that Hugging Face's clients write where they are given none.
PLACEHOLDERS = frozenset({"tgi", "dummy"})


class ModelChoice:
    """Chooses the models that answer requests, and the paths below them.

    Args:
        backend: what knows the models.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def of_path(self, request: Request) -> tuple[Route, bool]:
        """Return the route of an address with the name of a model, and whether TorchServe has it.

        Raises:
            UnknownRoute: there is no such address.
        """
        path = request.scope["path"]
        found = OF_VERSION.fullmatch(path)
        if found is None and request.method == "GET":
            found = ABOUT_MODEL.fullmatch(path)
        if found is None:
            route = find_route(path, request.query_params)
            return (route, True) if route.model else await self._unnamed(request, route)
        groups = found.groupdict(default="")
        # OpenAI's path has the name of a model or of one of its adapters.
        named = groups.get("named")
        entry = await (self._model_or_adapter(named) if named else self._model(groups["model"]))
        version = groups["version"]
        # Triton's versions are whole numbers.
        version = entry.version if entry.version == f"{version}.0" else version
        return Route(entry.name, version, {"url_path": path.lstrip("/")}), False

    async def of_stored_response(self, request: Request, response_id: str) -> Route:
        """Return the route to the model that has made a response.

        Raises:
            NoSuchResponse: there is none, or it was unloaded since.
        """
        models = await self._backend.models(KNOWN_MAX_AGE)
        name = _name_outside_body(request) or model_of_response(response_id, models)
        if not name or (await self._model(name)).state == State.UNLOADED:
            raise NoSuchResponse(response_id)
        path = request.scope["path"].lstrip("/")
        return Route(name, "", {"url_path": path, METHOD_OVERRIDE: request.method})

    async def of_address(self, request: Request, address: Address, body: bytes) -> Route:
        """Return the route of a request without a model in its path.

        The request names it in its query, in a header, or in the key `model` of its body. If it
        names none, it is the only model, or the only one that does what the address is for.

        Raises:
            UnknownModel: no model has the name.
            ModelNotNamed: several models could answer.
            NoSuchAbility: no model can.
        """
        name = _name_outside_body(request)
        if not name and address.names_model_in_body:
            name = await name_in_body(body, request.headers)
        models = await self._backend.models(KNOWN_MAX_AGE)
        if name and (name in models or name not in PLACEHOLDERS):
            model = (await self._model_or_adapter(name)).name
        elif len(models) == 1:
            model = (await self._model(next(iter(models)))).name
        else:
            model = await self._only_able(address)
        return Route(model, "", {"url_path": address.path.lstrip("/")})

    async def _unnamed(self, request: Request, route: Route) -> tuple[Route, bool]:
        """Return the route of `/invocations` without TorchServe's `model_name`.

        Raises:
            UnknownModel: no model has the name that the request gives in another way.
            ModelNotNamed: several models could answer.
        """
        name = _name_outside_body(request)
        if name:
            return replace(route, model=(await self._model_or_adapter(name)).name), False
        models = (await self._backend.models(KNOWN_MAX_AGE)).values()
        serving = [each.name for each in models if each.state != State.FAILED]
        if len(serving) > 1:
            raise ModelNotNamed(request.scope["path"], sorted(serving), "in the header X-Model")
        if serving and len(models) > 1:  # TorchServe counts those that did not load.
            return replace(route, model=serving[0]), False
        return route, True

    async def _only_able(self, address: Address) -> str:
        """Return the name of the only model that does what an address is for.

        Raises:
            ModelNotNamed: there are several.
            NoSuchAbility: there is none.
        """
        described = await self._backend.described_models()
        serving = [each for each in described.values() if each.state != State.FAILED]
        able = [
            each.name
            for each in serving
            if not address.ability or address.ability in ABILITIES.get(each.mode, ())
        ]
        if len(able) == 1:
            return able[0]
        loading = [each.name for each in serving if each.state == State.LOADING]
        if not able and loading:
            raise Overloaded(f"{', '.join(loading)} still load; send the request again.")
        if not able:
            raise NoSuchAbility(address.path, sorted(each.name for each in serving))
        key = "as `model` in the body" if address.names_model_in_body else "in the header X-Model"
        raise ModelNotNamed(address.path, sorted(able), key)

    async def _model_or_adapter(self, name: str) -> ModelEntry:
        """Return the model that has a name, or an adapter of it.

        Raises:
            UnknownModel: there is none.
            NotLoaded: it did not load.
        """
        if name not in await self._backend.models(KNOWN_MAX_AGE):
            for each in (await self._backend.described_models()).values():
                if name in each.adapters:
                    return each
        return await self._model(name)

    async def _model(self, name: str) -> ModelEntry:
        """Return the entry of a model.

        Raises:
            UnknownModel: there is none.
            NotLoaded: it did not load.
        """
        entry = (await self._backend.models(KNOWN_MAX_AGE)).get(name)
        if entry is None or entry.state == State.FAILED:
            entry = (await self._backend.models(MAX_AGE)).get(name)
        if entry is None:
            raise UnknownModel(name, sorted(await self._backend.models(MAX_AGE)))
        if entry.state == State.FAILED:
            raise NotLoaded(name, entry.error)
        return entry


def _name_outside_body(request: Request) -> str:
    """Return the name of a model or adapter in the query or a header; empty without one."""
    return request.query_params.get("model") or request.headers.get(MODEL_HEADER, "")


async def name_in_body(body: bytes, headers: Headers) -> str:
    """Return the value of the key `model`; empty without one.

    It is empty for a body that cannot be read, too: the model refuses it then.

    Raises:
        RequestTooLarge: it has too many values.
    """
    content_type = headers.get("content-type", "").lower()
    if content_type.startswith((FORM, MULTIPART)):
        return await _name_in_form(body, headers["content-type"])
    try:
        coding = headers.get("content-encoding", "").strip().lower()
        text = decode_text(decompress(body, coding, MAX_BYTES), content_type=content_type)
    except RequestError:
        return ""
    if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES:
        raise RequestTooLarge(
            f"The body has more than {MAX_VALUES:,} values; send the request in parts."
        )
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return _text(content.get("model")) if isinstance(content, dict) else ""


async def _name_in_form(body: bytes, content_type: str) -> str:
    try:
        row, _ = await to_row(body, content_type)
    except RequestError:
        return ""
    return _text(row.get("model"))


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
