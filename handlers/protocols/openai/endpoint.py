"""The interface of an endpoint of OpenAI's API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from handlers.errors import RequestError
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.protocols.base import ParsedRequest, check_abilities, check_not_explained
from handlers.protocols.routes import Route
from handlers.types.model_info import ModelInfo
from handlers.types.parameters import WholeNumbers, parse_body


class Body(WholeNumbers):
    """Base of the bodies; the table of keys decides on keys that are no fields."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )

    model: str | None = None


BodyT = TypeVar("BodyT", bound=BaseModel)


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
        """Parse a request.

        Raises:
            RequestError: it cannot be understood, or this model cannot do it.
        """
        check_abilities(self.model, self.route)
        check_not_explained(http_request, self.path())
        http_request = self.route.keys.check(http_request)
        return self.parsed_request(http_request, self.read_body(http_request.content))

    def read_body(self, content: Any) -> BodyT:
        """Check the content of a body.

        Raises:
            RequestError: it is wrong, or has a setting that is not supported.
        """
        body: BodyT = parse_body(self.route.body, content)
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

    def last_event(self, parsed: ParsedRequest, error: RequestError) -> bytes:
        """Return the events of an error that ends a stream."""
        raise NotImplementedError


@dataclass(frozen=True)
class Call(Generic[BodyT]):
    """What an endpoint needs to write a response.

    Attributes:
        endpoint: the endpoint.
        body: the checked body.
    """

    endpoint: Endpoint[BodyT]
    body: BodyT
