"""Errors of the application itself, in the shape of the API whose address a request has.

An archive of an earlier version has other modules for these shapes, so they are written here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.responses import Response

from hf_serve.handlers.errors import BadRequest, NotFound, Overloaded, RequestError
from hf_serve.hosts.asgi.addresses import Api

# Text Embeddings Inference and Text Generation Inference have other words for the same statuses.
_EMBEDDINGS_TYPES = {429: "Overloaded", 503: "Overloaded"}
_GENERATION_TYPES = {429: "overloaded", 503: "overloaded"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class UnknownModel(NotFound):
    """No model has the name that a request gives."""

    kind = "ModelNotFoundException"
    code: ClassVar[str | None] = "model_not_found"
    param: ClassVar[str | None] = "model"

    def __init__(self, requested: str, known: Sequence[str]) -> None:
        names = ", ".join(known) or "none"
        super().__init__(f"There is no model {requested[:200]!r} here; there are {names}.")


class NoSuchAbility(NotFound):
    """No model does what an address is for."""

    def __init__(self, path: str, known: Sequence[str]) -> None:
        names = ", ".join(known) or "none"
        super().__init__(f"No model here answers {path}; there are {names}.")


class ModelNotNamed(BadRequest):
    """Several models could answer, and the request names none."""

    param: ClassVar[str | None] = "model"

    def __init__(self, path: str, candidates: Sequence[str], key: str) -> None:
        super().__init__(
            f"{', '.join(candidates)} can answer {path}; name one of them {key},"
            " or as ?model=NAME in the address."
        )


class NoSuchResponse(NotFound):
    """No model has made a response with an id, or it is unloaded since."""

    def __init__(self, response_id: str) -> None:
        super().__init__(f"No model here has the response {response_id[:200]!r}.")


class NotLoaded(Overloaded):
    """The model did not load."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"{model} is not served: {reason}")


class Unauthorized(RequestError):
    """A request has no key, or a wrong one."""

    status, kind, hub_type = 401, "UnauthorizedException", None
    code: ClassVar[str | None] = "invalid_api_key"
    headers = {"WWW-Authenticate": "Bearer"}

    def __init__(self) -> None:
        super().__init__(
            "The request has no valid API key; send one as Authorization: Bearer KEY or X-Api-Key."
        )


def error_response(api: Api, error: RequestError) -> Response:
    """Return the response to a request that fails."""
    named = (getattr(error, "code", None), getattr(error, "param", None))
    body = error_body(api, error.status, str(error), error.kind, *named)
    return Response(
        json.dumps(body), error.status, dict(error.headers), media_type="application/json"
    )


def error_body(
    api: Api,
    status: int,
    message: str,
    kind: str,
    code: str | None = None,
    param: str | None = None,
) -> dict[str, Any]:
    """Return the body of an error in the shape of an API.

    Args:
        api: the API.
        status: the status of the response.
        message: what is wrong.
        kind: the type of the error in TorchServe's shape.
        code: OpenAI's code of the error.
        param: the key that the error is about.
    """
    if api == Api.OPENAI:
        type_ = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": type_, "param": param, "code": code}}
    if api == Api.ANTHROPIC:
        default = "api_error" if status >= 500 else "invalid_request_error"
        type_ = _ANTHROPIC_TYPES.get(status, default)
        return {"type": "error", "error": {"type": type_, "message": message}}
    if api == Api.COHERE:
        return {"message": message, "detail": message}
    if api == Api.EMBEDDINGS:
        return {"error": message, "error_type": _EMBEDDINGS_TYPES.get(status, "Validation")}
    if api == Api.GENERATION:
        return {"error": message, "error_type": _GENERATION_TYPES.get(status, "validation")}
    if api == Api.OPEN_INFERENCE:
        return {"error": message}
    return {"code": status, "type": kind, "message": message, "error": message}


def in_shape_of(api: Api, status: int, body: bytes) -> bytes:
    """Return the body of an error in the shape of an API, where TorchServe or a host has made it.

    The errors of models have the shape of their protocol already.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(found, Mapping) or "error_type" in found or "code" not in found:
        return body
    message = str(found.get("message") or HTTPStatus(status).phrase)
    kind = str(found.get("type", ""))
    is_unknown = kind == UnknownModel.kind
    named = (UnknownModel.code, UnknownModel.param) if is_unknown else ()
    return json.dumps(error_body(api, status, message, kind, *named)).encode()
