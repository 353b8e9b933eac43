"""One operation of a document: a path, its request bodies and its responses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handlers.errors import (
    BadRequest,
    InternalError,
    NotFound,
    Overloaded,
    RequestError,
    RequestTooLarge,
    Unprocessable,
)
from handlers.http.response import JSON
from scripts.openapi.shapes import Schema, one_of, ref

PARAMETERS = {
    "model": "The name under which a model is served.",
    "version": "A version of the model, for example 1.0.",
}
# TorchServe's own errors have the same shape in every protocol.
TORCHSERVES = (NotFound, InternalError, Overloaded)
ERRORS: tuple[type[RequestError], ...] = (
    BadRequest,
    *TORCHSERVES,
    RequestTooLarge,
    Unprocessable,
)
ERROR, TORCHSERVE_ERROR = ref("WholeErrorBody"), ref("ErrorBody")
TOO_LARGE = "More bytes than the server's `max_request_size` get this status and nothing else."


@dataclass(frozen=True)
class Body:
    """A request body of one content type."""

    schema: Schema
    examples: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return it as a media type of OpenAPI."""
        examples = {name: {"value": value} for name, value in self.examples.items()}
        return {"schema": self.schema, "examples": examples}


@dataclass(frozen=True)
class Operation:
    """A method of one path.

    Attributes:
        path: with names of parameters in braces.
        name: the operation's id, for generated clients.
        tags: the servers or protocols that it belongs to.
        summary: what it does.
        answers: the schema of a success, by content type.
        bodies: the request bodies, by content type; empty for a GET.
        description: further text.
        errors: the schemas of its errors.
        other_statuses: statuses that other protocols have not, each with what it means.
    """

    path: str
    name: str
    tags: Sequence[str]
    summary: str
    answers: Mapping[str, Schema]
    bodies: Mapping[str, Body] = field(default_factory=dict)
    description: str = ""
    errors: Sequence[Schema] = (ERROR,)
    other_statuses: Mapping[int, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "post" if self.bodies else "get"

    def as_json(self, served: Mapping[str, str]) -> dict[str, Any]:
        """Return it as an operation of OpenAPI; `served` has an example of each parameter."""
        names = re.findall(r"\{(\w+)\}", self.path)
        contents = {kind: body.as_json() for kind, body in self.bodies.items()}
        return {
            "operationId": self.name,
            "tags": list(self.tags),
            "summary": self.summary,
            **({"description": self.description} if self.description else {}),
            "parameters": [_parameter(name, served[name]) for name in names],
            **({"requestBody": {"required": True, "content": contents}} if contents else {}),
            "responses": {"200": _response("An answer.", self.answers), **self._errors(names)},
        }

    def _errors(self, names: list[str]) -> dict[str, Any]:
        """Return the errors of a path with a model."""
        common = {
            str(kind.status): _response(_sentence(kind), {JSON: self._error_of(kind)})
            for kind in sorted(ERRORS, key=lambda kind: kind.status)
            if names
        }
        others = {
            str(status): _response(sentence, {JSON: one_of(self.errors)})
            for status, sentence in self.other_statuses.items()
        }
        return dict(sorted({**common, **others}.items()))

    def _error_of(self, kind: type[RequestError]) -> Schema:
        return one_of([*self.errors, *([TORCHSERVE_ERROR] if kind in TORCHSERVES else [])])


def _response(description: str, answers: Mapping[str, Schema]) -> dict[str, Any]:
    content = {kind: {"schema": schema} for kind, schema in answers.items()}
    return {"description": description, "content": content}


def _sentence(kind: type[RequestError]) -> str:
    if kind is NotFound:
        return "There is no model, or no version of it, under this name."
    sentence = (inspect.getdoc(kind) or "").replace("\n", " ")
    return f"{sentence} {TOO_LARGE}" if kind is RequestTooLarge else sentence


def _parameter(name: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": PARAMETERS[name],
        "schema": {"type": "string"},
        "example": example,
    }
