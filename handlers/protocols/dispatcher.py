"""A batch of HTTP requests: protocols parse them, the engine runs them, the protocols respond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from handlers import protocols
from handlers.engine import Engine
from handlers.errors import RequestError, attempt
from handlers.explainers._page import HTML, prefers_page, render
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.protocols.base import BaseProtocol, in_place
from handlers.schemas.request import Request
from handlers.telemetry.meter import Meter


@dataclass(frozen=True)
class Exchange:
    """An HTTP request, the protocol that reads and writes it, and its requests to the engine.

    `error` says why there are no requests.
    """

    http_request: HttpRequest
    protocol: BaseProtocol
    requests: list[Request]
    error: RequestError | None = None


class Dispatcher:
    """Answers the HTTP requests to one model."""

    def __init__(self, engine: Engine, name: str = "model", version: str = "1.0") -> None:
        self._engine = engine
        self._protocols = protocols.create(engine.describe(name, version))

    def dispatch(self, http_requests: Sequence[HttpRequest], meter: Meter) -> list[HttpResponse]:
        """Return a response to each request; predictions and explanations may share a batch."""
        with meter.stage("read"):
            exchanges = [self._parse(http_request) for http_request in http_requests]
        outcomes = self._outcomes(exchanges, meter)
        with meter.stage("write"):
            responses = [_respond(*each) for each in zip(exchanges, outcomes, strict=True)]
        errors = sum(response.status >= 400 for response in responses)
        meter.count(requests=len(http_requests), errors=errors)
        return responses

    def _parse(self, http_request: HttpRequest) -> Exchange:
        protocol = attempt(self._recognise, http_request)
        if isinstance(protocol, RequestError):
            return Exchange(http_request, self._protocols[-1], [], protocol)
        requests = attempt(protocol.read, http_request)
        if isinstance(requests, RequestError):
            return Exchange(http_request, protocol, [], requests)
        return Exchange(http_request, protocol, requests)

    def _recognise(self, http_request: HttpRequest) -> BaseProtocol:
        return next(known for known in self._protocols if known.recognises(http_request))

    def _outcomes(self, exchanges: Sequence[Exchange], meter: Meter) -> list[list[Any]]:
        """Return the outcomes of each exchange; predictions run together, and so do explanations."""
        predictions = self._engine.predict(_requests(exchanges, explains=False), meter)
        explanations = self._engine.explain(_requests(exchanges, explains=True), meter)
        sources = {False: iter(predictions), True: iter(explanations)}
        return [
            [next(sources[exchange.http_request.explains]) for _ in exchange.requests]
            for exchange in exchanges
        ]


def _requests(exchanges: Sequence[Exchange], *, explains: bool) -> list[Request]:
    chosen = (
        exchange.requests for exchange in exchanges if exchange.http_request.explains == explains
    )
    return list(chain.from_iterable(chosen))


def _respond(exchange: Exchange, outcomes: Sequence[Any]) -> HttpResponse:
    if exchange.error:
        return exchange.protocol.refuse(exchange.http_request, exchange.error)
    response = attempt(_write, exchange, outcomes)
    return (
        exchange.protocol.refuse(exchange.http_request, response)
        if isinstance(response, RequestError)
        else response
    )


def _write(exchange: Exchange, outcomes: Sequence[Any]) -> HttpResponse:
    as_page = exchange.http_request.explains and prefers_page(
        exchange.http_request.header("accept")
    )
    if as_page and not all(isinstance(outcome, RequestError) for outcome in outcomes):
        results = exchange.protocol.places(exchange.http_request, outcomes)
        return HttpResponse(render([in_place(each) for each in results]), content_type=HTML)
    return exchange.protocol.write(exchange.http_request, exchange.requests, outcomes)
