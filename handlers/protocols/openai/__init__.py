"""OpenAI's API below the model's path, for texts, images, embeddings and audio, with vLLM's.

A client's base URL is `http://host:8080/predictions/<model>/<version>/v1`. `models` lists the one
model that is served here, and its LoRA adapters. KServe's V1 requests the readiness of a model
below the same path, so `models/<name>` has its keys `name` and `ready` as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ...config.messages import shorten
from ...errors import NotFound, RequestError
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...http.streams import SERVER_SENT_EVENTS, streaming_started
from ...types.model_info import ModelInfo
from ..base import NO_BODY, BaseProtocol, ParsedRequest, Route, with_names
from .audio import Speech, Transcriptions, Translations
from .bodies import CHAT, COMPLETIONS
from .decisions import Decisions, SystemOne
from .embeddings import Embeddings
from .endpoint import Call, Endpoint, model_entries
from .errors import ModelNotFound, error_body, key_names, to_openai_error
from .generation import Chat, Completions
from .images import Images
from .moderations import Moderations
from .pooling import Classify, Pooling, Score
from .responses import Responses
from .types import ModelList, OpenAIError, ServedModelStatus

# All below v1, but for KServe's paths such as v1/models/M:predict; v1 may be left out.
PATH = re.compile(
    r"v1(?!/models/.*:)(/.*)?"
    r"|(audio/[a-z]+|chat/completions|completions|models|embeddings|moderations|responses|images/generations"
    r"|decisions|systemone|score|classify|pooling)(/[^:]*)?"
)
MODELS = "models"
# The beginning of the path of a stored response.
STORED = "responses/"
ENDPOINTS: tuple[type[Endpoint[Any]], ...] = (
    Chat,
    Completions,
    Responses,
    Embeddings,
    Moderations,
    Decisions,
    SystemOne,
    Score,
    Classify,
    Pooling,
    Images,
    Transcriptions,
    Translations,
    Speech,
)


class Protocol(BaseProtocol):
    """Requests of OpenAI's clients; without adapters, `model` may be any name."""

    body_keys = NO_BODY
    routes = (
        *(each.route for each in ENDPOINTS),
        replace(Embeddings.route, path="embeddings", name="infinityEmbeddings", server="Infinity"),
        # vLLM's own paths of `classify` and `pooling`.
        replace(Score.route, path="score", name="scoreWithoutVersion"),
        replace(Classify.route, path="classify", name="classifyWithoutVersion"),
        replace(Pooling.route, path="pooling", name="poolingWithoutVersion"),
        Route(
            "v1/models",
            name="listModels",
            server="OpenAI",
            summary="List the model and its LoRA adapters.",
            response=ModelList,
            error=OpenAIError,
        ),
    )

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        self._responses = Responses(model)
        self._endpoints: dict[str, Endpoint[Any]] = {
            each.path(): self._responses if each is Responses else each(model) for each in ENDPOINTS
        }

    @property
    def paths(self) -> Collection[str] | None:
        """The paths of the endpoints, with and without `v1`; others below `v1` are refused."""
        return {*self._endpoints, *(f"v1/{path}" for path in self._endpoints)}

    def recognises(self, http_request: HttpRequest) -> bool:
        return PATH.fullmatch(http_request.path) is not None

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        path = self._path(http_request)
        if path == MODELS or path.startswith(f"{MODELS}/"):
            name = path.removeprefix(MODELS).strip("/")
            self._check_model(name)
            models = self._models(http_request)
            return ParsedRequest(http_request, context=models, checks_health=bool(name))
        if path.startswith(STORED):
            found = self._responses.stored(http_request, path.removeprefix(STORED))
            return ParsedRequest(http_request, context=found)
        if path not in self._endpoints:
            known = ", ".join([*self._endpoints, MODELS])
            raise NotFound(f"There is no {shorten(path)} here; there are {known}.")
        return self._endpoints[path].parse(http_request)

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        if not isinstance(parsed.context, Call):
            return HttpResponse(encode_json(parsed.context))
        endpoint: Endpoint[Any] = parsed.context.endpoint
        if error := endpoint.failure(parsed, outcomes):
            return self._failed(parsed, error)
        return endpoint.write(parsed, outcomes)

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        error = to_openai_error(error, self.model.limits)
        endpoint = self._endpoints.get(self._path(http_request))
        return _response(error, endpoint.error_body(error) if endpoint else error_body(error))

    def _path(self, http_request: HttpRequest) -> str:
        """Return the path of the endpoint that a request is for."""
        return http_request.path.removeprefix("v1/")

    def _check_model(self, name: str) -> None:
        """Refuse a name that is not the name of the model or one of its adapters."""
        known = model_entries(self.model)
        if name and name not in known:
            raise ModelNotFound(name, list(known))

    def _models(self, http_request: HttpRequest) -> ModelList | ServedModelStatus:
        entries = model_entries(self.model)
        name = http_request.path.rpartition(f"{MODELS}/")[2]
        if name.rpartition("/")[2] != MODELS:
            entry = entries[name]
            return {**entry, "name": entry["id"], "ready": True}
        return {"object": "list", "data": list(entries.values())}

    def _failed(self, parsed: ParsedRequest, error: RequestError) -> HttpResponse:
        """Return an error; as the last event, where a part of the response was sent."""
        endpoint: Endpoint[Any] = parsed.context.endpoint
        error = with_names(error, key_names(endpoint.path(), endpoint.inputs_key))
        error = to_openai_error(error, self.model.limits, endpoint.inputs_key)
        if not streaming_started(parsed.requests):
            return _response(error, endpoint.error_body(error, parsed.context.body))
        return SERVER_SENT_EVENTS.response(endpoint.last_event(parsed, error))


def _response(error: RequestError, body: OpenAIError) -> HttpResponse:
    return HttpResponse(encode_json(body), error.status, headers=error.headers)


GENERATION = {"messages": Chat.path(), "prompt": Completions.path()}
SETTINGS = {*CHAT.keys, *COMPLETIONS.keys} - GENERATION.keys()
OTHER_KEYS = {"inputs", "parameters"}


class WithoutPath(Protocol):
    """OpenAI's bodies where no path identifies them, as text-generation-inference's on SageMaker.

        {"messages": […], "max_tokens": 20}   a chat
        {"prompt": "…", "model": "…"}         a prompt
        {"input": "…", "model": "…"}          an embedding

    Messages or a prompt without another key of OpenAI's are inputs for the Hugging Face protocol.
    """

    body_keys = MappingProxyType({**dict.fromkeys(GENERATION, object), "input": object})
    routes = ()

    @property
    def paths(self) -> Collection[str] | None:
        return None

    def recognises(self, http_request: HttpRequest) -> bool:
        if http_request.path or http_request.explains or not self._paths:
            return False
        content = http_request.content
        if not isinstance(content, dict) or not OTHER_KEYS.isdisjoint(content):
            return False
        if self.model.task.generation.continues_prompts and SETTINGS.isdisjoint(content):
            return False
        return not self._paths.keys().isdisjoint(content)

    def _path(self, http_request: HttpRequest) -> str:
        content = http_request.content
        return next((path for key, path in self._paths.items() if key in content), "")

    @property
    def _paths(self) -> Mapping[str, str]:
        """The endpoint of each key that a body for this model has."""
        if self.model.task.generation.continues_prompts:
            return GENERATION
        return {"input": Embeddings.path()} if self.model.task.service == "embed" else {}
