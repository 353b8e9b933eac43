"""A batch of HTTP requests: protocols parse them, the engine runs them, the protocols respond."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from handlers import protocols
from handlers.config.quoting import shorten
from handlers.engine import Engine
from handlers.errors import RequestError, RequestTooLarge, attempt
from handlers.explainers._page import HTML, prefers_page, render, target_view
from handlers.http.limits import BodyLimits, server_limits
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.http.streams import streaming_started
from handlers.protocols.base import BaseProtocol, Exchange, result_or_error_body
from handlers.runtime.deadline import NO_DEADLINE, Deadline
from handlers.schemas.request import Request
from handlers.telemetry.meter import Meter

# Sentences quote little of a request; this holds for those of libraries and of checkpoints, too.
MAX_SENTENCE = 1_000
# The engine's methods in the order in which they run; explanations take longest.
BEFORE_EXPLANATIONS = ("tokenize", "detokenize", "predict")
Run = Callable[[Sequence[Request], Meter, Deadline, Sequence[int]], list[Any]]


@dataclass(frozen=True)
class Parsed:
    """An HTTP request, its protocol, and what the protocol parsed or the error that it raised."""

    http_request: HttpRequest
    protocol: BaseProtocol
    exchange: Exchange | RequestError

    @property
    def call(self) -> str:
        """The engine's method that takes the requests."""
        named = None if isinstance(self.exchange, RequestError) else self.exchange.call
        return named or ("explain" if self.http_request.explains else "predict")

    @property
    def requests(self) -> list[Request]:
        """The requests for the engine; none if the protocol raised an error."""
        return [] if isinstance(self.exchange, RequestError) else self.exchange.requests

    def error_response(self, error: RequestError) -> HttpResponse:
        """Return the response to a request that failed as a whole."""
        return self.protocol.error_response(self.http_request, _shortened(error))


class Dispatcher:
    """Answers the HTTP requests to one model.

    Args:
        engine: the model.
        name: the name under which it is served.
        version: the archive's version.
        limits: those of bodies; by default those of the server that started this process.
    """

    def __init__(
        self,
        engine: Engine,
        name: str = "model",
        version: str = "1.0",
        limits: BodyLimits | None = None,
    ) -> None:
        self._engine = engine
        model = engine.describe(name, version)
        self._protocols = protocols.create(model)
        self._reads_media = model.reads_media
        self._limits = (limits or server_limits()).for_rows(model.limits.max_rows)
        engine.max_result_bytes = self._limits.max_response_bytes

    def dispatch(
        self,
        http_requests: Sequence[HttpRequest],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
        send_ready: Callable[[Mapping[int, HttpResponse]], None] = lambda _: None,
    ) -> list[HttpResponse]:
        """Return a response to each request; all kinds of them may share a batch.

        Args:
            http_requests: the requests.
            meter: counts and measures.
            deadline: the time limit of the predictions.
            send_ready: takes the responses by number that are ready before explanations begin.
        """
        with meter.stage("read"):
            parsed = [self._parse(self._of_model(each)) for each in http_requests]
        responses: dict[int, HttpResponse] = {}
        for call in BEFORE_EXPLANATIONS:
            responses |= self._respond_to(parsed, call, meter, deadline)
        if responses and len(responses) < len(parsed):
            send_ready(responses)
        responses |= self._respond_to(parsed, "explain", meter, deadline)
        errors = sum(response.status >= 400 for response in responses.values())
        meter.count(requests=len(http_requests), errors=errors)
        return [responses[number] for number in range(len(parsed))]

    def _of_model(self, http_request: HttpRequest) -> HttpRequest:
        """Return a request as this model reads it."""
        return replace(http_request, limits=self._limits, reads_media=self._reads_media)

    def _parse(self, http_request: HttpRequest) -> Parsed:
        protocol = attempt(self._recognise, http_request)
        if isinstance(protocol, RequestError):
            return Parsed(http_request, self._protocols[-1], protocol)
        return Parsed(http_request, protocol, attempt(protocol.parse, http_request))

    def _recognise(self, http_request: HttpRequest) -> BaseProtocol:
        return next(known for known in self._protocols if known.recognises(http_request))

    def _respond_to(
        self, parsed: Sequence[Parsed], call: str, meter: Meter, deadline: Deadline
    ) -> dict[int, HttpResponse]:
        """Return the responses to all requests for one of the engine's methods, run together."""
        chosen = {number: each for number, each in enumerate(parsed) if each.call == call}
        if not chosen:
            return {}
        run: Run = getattr(self._engine, call)
        owners = [number for number, each in chosen.items() for _ in each.requests]
        requests = list(chain.from_iterable(each.requests for each in chosen.values()))
        outcomes: dict[int, list[Any]] = {number: [] for number in chosen}
        found = run(requests, meter, deadline, owners) if requests else []
        for owner, outcome in zip(owners, found, strict=True):
            outcomes[owner].append(outcome)
        with meter.stage("write"):
            return {
                number: self._respond(each, outcomes[number]) for number, each in chosen.items()
            }

    def _respond(self, parsed: Parsed, outcomes: Sequence[Any]) -> HttpResponse:
        exchange = parsed.exchange
        if isinstance(exchange, RequestError):
            return parsed.error_response(exchange)
        more = exchange.http_request.response_headers
        response = self._response(parsed, exchange, outcomes)
        return replace(response, headers={**response.headers, **more}) if more else response

    def _response(
        self, parsed: Parsed, exchange: Exchange, outcomes: Sequence[Any]
    ) -> HttpResponse:
        if exchange.asks_health and (failure := self._engine.failure):
            return parsed.error_response(failure)
        short = [_shortened(outcome) for outcome in outcomes]
        response = attempt(_write, parsed.protocol, exchange, short)
        if isinstance(response, RequestError):
            return parsed.error_response(response)
        size, limit = len(response.body), self._limits.max_response_bytes
        if size <= limit or streaming_started(exchange.requests):
            return response
        return parsed.error_response(
            RequestTooLarge(
                f"The response has {size:,} bytes, more than the server's max_response_size of"
                f" {limit:,}; ask for less."
            )
        )


def _shortened(outcome: Any) -> Any:
    """Return an outcome; the sentence of an error is cut where it is long."""
    if isinstance(outcome, RequestError):
        outcome.args = (shorten(str(outcome), MAX_SENTENCE),)
    return outcome


def _write(protocol: BaseProtocol, exchange: Exchange, outcomes: Sequence[Any]) -> HttpResponse:
    as_page = exchange.explains and prefers_page(exchange.http_request.header("accept"))
    if as_page and not all(isinstance(outcome, RequestError) for outcome in outcomes):
        results = [result_or_error_body(outcome) for outcome in exchange.by_item(outcomes)]
        views = protocol.model.explanation_views or target_view
        return HttpResponse(render(results, views), content_type=HTML)
    return protocol.write(exchange, outcomes)
