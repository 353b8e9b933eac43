"""The interface of an endpoint of OpenAI's API."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict

from ... import __version__
from ...errors import BadRequest, RequestError
from ...http.request import HttpRequest
from ...http.response import HttpResponse
from ...types.model_info import ModelInfo
from ...types.parameters import WholeNumbers, parse_body
from ..base import ParsedRequest, Route, first_error
from .errors import ModelNotFound, error_body
from .types import OpenAIError, ServedModel


class Body(WholeNumbers):
    """Base of the bodies; the table of keys decides on keys that are no fields."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )

    model: str | None = None

    def check_supported(self) -> None:
        """Refuse what this server cannot do."""


BodyT = TypeVar("BodyT", bound=Body)


class ExplainedBody(Body):
    """Base of the bodies that /explanations takes, too; `parameters` are for explanations."""

    parameters: dict[str, Any] | None = None

    def explanation_parameters(self, http_request: HttpRequest) -> dict[str, Any]:
        """Return the parameters.

        Raises:
            BadRequest: there are some, and the request is for a prediction.
        """
        if self.parameters and not http_request.explains:
            raise BadRequest(
                "parameters are for explanations; leave it out, or send the body to /explanations."
            )
        return dict(self.parameters or {})


class Endpoint(ABC, Generic[BodyT]):
    """An endpoint of OpenAI's API.

    Attributes:
        route: its path, and the types of its requests and responses.
        inputs_key: the key of the inputs in its bodies.
    """

    route: ClassVar[Route]
    inputs_key: ClassVar[str]

    def __init__(self, model: ModelInfo) -> None:
        self.model = model

    @classmethod
    def path(cls) -> str:
        """Return the end of its URL."""
        return cls.route.path.removeprefix("v1/")

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        """Parse a request."""
        http_request = self.route.check(http_request, self.model)
        return self.parsed_request(http_request, self.read_body(http_request.content))

    def read_body(self, content: Any) -> BodyT:
        """Return the checked content of a body."""
        body: BodyT = parse_body(self.route.body, content)
        body.check_supported()
        return body

    @abstractmethod
    def parsed_request(self, http_request: HttpRequest, body: BodyT) -> ParsedRequest:
        """Return the parsed request, from its checked body; the context is a :class:`Call`.

        Raises:
            RequestError: the model cannot do what it asks for.
        """

    @abstractmethod
    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        """Return the response, from the result of each request."""

    def failure(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> RequestError | None:
        """Return the error of the request as a whole; None where all of its inputs have results."""
        return first_error(outcomes, self.inputs_key)

    def error_body(self, error: RequestError, body: BodyT | None = None) -> OpenAIError:
        """Return the body of an error, which names the key that it is about.

        Args:
            body: the body of the request; None where it was not read.
        """
        found = error_body(error, self.route.keys.keys)
        if body and found["error"]["param"] is None and error.status < 500:
            found["error"]["param"] = self.key_of(str(error), body)
        return found

    def key_of(self, sentence: str, body: BodyT) -> str | None:
        """Return the key of a body that a sentence of the engine is about, under another name."""
        return None

    def last_event(self, parsed: ParsedRequest, error: RequestError) -> bytes:
        """Return the events of an error that ends a stream."""
        raise NotImplementedError


@dataclass(frozen=True)
class Call(Generic[BodyT]):
    """What an endpoint needs to write a response."""

    endpoint: Endpoint[BodyT]
    body: BodyT


def adapter_parameters(model: ModelInfo, requested: str | None) -> dict[str, Any]:
    """Return the parameters of the task that the `model` of a body stands for.

    Raises:
        ModelNotFound: it is neither the model nor one of its adapters.
    """
    if not model.adapters or requested is None:
        return {}
    if requested == model.name or requested in model.adapters:
        return {"adapter_id": None if requested == model.name else requested}
    raise ModelNotFound(requested, [model.name, *model.adapters])


def served_name(model: ModelInfo, requested: str | None) -> str:
    """Return the name of what answers: the adapter that a body names, or the model."""
    return requested if requested and requested in model.adapters else model.name


def fingerprint(model: ModelInfo) -> str:
    """Return a hash of what changes the text of a seed: model, format, data type and version."""
    parts = (model.name, model.version, model.save_mode, model.dtype, __version__)
    return f"fp_{hashlib.sha256(repr(parts).encode()).hexdigest()[:10]}"


def model_entries(model: ModelInfo) -> dict[str, ServedModel]:
    """Return the entry of the model and of each adapter in the list of models, by their names."""
    adapters: dict[str, ServedModel] = {
        name: {**_entry(model, name), "parent": model.name} for name in model.adapters
    }
    return {model.name: _entry(model, model.name), **adapters}


def _entry(model: ModelInfo, name: str) -> ServedModel:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "torchserve",
        "root": name,
        "max_model_len": model.limits.max_total_tokens,
    }
