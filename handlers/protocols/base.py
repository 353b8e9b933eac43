"""What every wire format does: body -> requests, results -> body."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from handlers.errors import BadRequest, RequestError, RequestTooLarge
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.request import Request


class BaseProtocol(ABC):
    """One way of asking; an instance serves one model, and keeps nothing about a request."""

    def __init__(self, model: ModelInfo) -> None:
        self.model = model

    @abstractmethod
    def recognises(self, http_request: HttpRequest) -> bool:
        """Tell whether a post is in this format, from its path, its content type or its content.

        Raises:
            RequestError: when it asks for the content and that cannot be read.
        """

    @abstractmethod
    def read(self, http_request: HttpRequest) -> list[Request]:
        """Return the requests in a post; none where the answer needs no model.

        Raises:
            RequestError: when the post as a whole cannot be understood.
        """

    @abstractmethod
    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], outcomes: Sequence[Any]
    ) -> HttpResponse:
        """Return the answer to a post, from the outcome of each of its requests."""

    def places(self, http_request: HttpRequest, outcomes: Sequence[Any]) -> list[Any]:
        """Return what is told in each place of a post: the outcomes, or why there is none."""
        return list(outcomes)

    def complaint(self, error: RequestError) -> Any:
        """Return an error in this format's own shape, ready for JSON."""
        return error.body()

    def refuse(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        """Return the answer to a post that failed as a whole."""
        return HttpResponse(encode_json(self.complaint(error)), error.status)

    def requests(
        self, inputs: Any, parameters: Mapping[str, Any], name: str = "inputs"
    ) -> list[Request]:
        """Return a request for each item of a list, or the one request that inputs are.

        Args:
            inputs: what the body asks about; the messages of one chat are one request.
            parameters: what every request of the body is to get.
            name: what the body calls the inputs, for errors.
        """
        if not isinstance(inputs, list) or is_chat(inputs):
            return [Request(inputs, parameters)]
        self.check_count(len(inputs), name)
        return [Request(item, parameters, alone=False) for item in inputs]

    def check_count(self, count: int, name: str) -> None:
        """Check that a body holds at least one item, and not too many.

        Raises:
            BadRequest: it holds none.
            RequestTooLarge: it holds more than the YAML's `max_rows`.
        """
        if not count:
            raise BadRequest(f"{name} is an empty list; send at least one item.")
        if count > self.model.limits.max_rows:
            raise RequestTooLarge(
                f"{name} has {count} items, and this model takes {self.model.limits.max_rows}"
                " a request; send them in parts."
            )


class RowProtocol(BaseProtocol):
    """A way of asking whose answers have a place for each request's result, or its error."""

    @abstractmethod
    def reply(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> Any:
        """Return the answer, ready for JSON; a request that failed has its error's body there."""

    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], outcomes: Sequence[Any]
    ) -> HttpResponse:
        """Return the answer to a post, from the outcome of each of its requests."""
        failed = [outcome for outcome in outcomes if isinstance(outcome, RequestError)]
        if failed and len(failed) == len(outcomes):
            return self.refuse(http_request, failed[0])
        results = [in_place(outcome) for outcome in outcomes]
        return self.lay_out(http_request, requests, results)

    def lay_out(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> HttpResponse:
        """Return an answer as bytes: the reply as JSON, unless a format has others."""
        return HttpResponse(encode_json(self.reply(http_request, requests, results)))


class ItemProtocol(RowProtocol):
    """A way of asking whose items are read one by one: a wrong one harms itself only."""

    @abstractmethod
    def items(self, http_request: HttpRequest) -> Sequence[Request | RequestError]:
        """Return the request of each item in a post, or why there is none; always the same.

        Raises:
            RequestError: when the post as a whole cannot be understood.
        """

    def read(self, http_request: HttpRequest) -> list[Request]:
        return [item for item in self.items(http_request) if isinstance(item, Request)]

    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], outcomes: Sequence[Any]
    ) -> HttpResponse:
        """Return the answer to a post; what could not be read has its error in its place."""
        return super().write(http_request, requests, self.places(http_request, outcomes))

    def places(self, http_request: HttpRequest, outcomes: Sequence[Any]) -> list[Any]:
        known = iter(outcomes)
        return [
            next(known) if isinstance(item, Request) else item for item in self.items(http_request)
        ]


def in_place(outcome: Any) -> Any:
    """Return a result, or an error's body where the result would be."""
    return outcome.body() if isinstance(outcome, RequestError) else outcome


def is_chat(inputs: Any) -> bool:
    """Tell whether a list holds the messages of a chat, each with a role."""
    return bool(inputs) and all(isinstance(item, dict) and "role" in item for item in inputs)
