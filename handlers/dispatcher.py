"""A batch of HTTP requests: protocols parse them, the engine runs them, the protocols respond."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from . import protocols
from .config.messages import shorten
from .engine import BaseEngine
from .errors import RequestError, RequestTooLarge, attempt
from .explainers.page import render, target_view
from .http.html import HTML, prefers_page
from .http.limits import BodyLimits, server_limits
from .http.request import HttpRequest
from .http.response import HttpResponse
from .http.streams import streaming_started
from .process.deadline import NO_DEADLINE, Deadline
from .protocols.base import BaseProtocol, ParsedRequest, result_or_error_body
from .telemetry.metrics import Meter
from .types.request import Operation, Request

# Error messages of the kit are short. Messages of libraries and of checkpoints are cut here.
MAX_SENTENCE = 1_000
Run = Callable[[Sequence[Request], Meter, Deadline, Sequence[int]], Sequence[Any]]


class _Group(NamedTuple):
    """The requests of a batch for one operation.

    Attributes:
        parsed: the number of each HTTP request, its protocol, and what the protocol parsed.
        requests: the requests of all of them.
        http_request_ids: the number of the HTTP request of each request.
    """

    parsed: list[tuple[int, BaseProtocol, ParsedRequest]]
    requests: list[Request]
    http_request_ids: list[int]


class Dispatcher:
    """Answers the HTTP requests to one model.

    Args:
        limits: the limits of bodies; by default the limits of the server that started this process.
    """

    def __init__(
        self,
        engine: BaseEngine,
        name: str = "model",
        version: str = "1.0",
        limits: BodyLimits | None = None,
    ) -> None:
        self._engine = engine
        model = engine.describe(name, version)
        self._protocols = protocols.create(model)
        self._by_path = _by_path(self._protocols)
        self._reads_media = model.task.wire.reads_media
        self._limits = (limits or server_limits()).for_rows(model.limits.max_rows)
        engine.max_result_bytes = self._limits.max_response_bytes

    def http_request(
        self,
        row: Mapping[str, Any],
        headers: Mapping[str, Any],
        send: Callable[[HttpResponse], None] | None = None,
        *,
        takes_bytes: bool = True,
    ) -> HttpRequest:
        """Return a request with the limits of this model; the arguments are its attributes."""
        return HttpRequest(row, headers, send, takes_bytes, self._limits, self._reads_media)

    def dispatch(
        self,
        http_requests: Sequence[HttpRequest],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
        send_ready: Callable[[Mapping[int, HttpResponse]], None] = lambda _: None,
    ) -> list[HttpResponse]:
        """Return a response to each request; all kinds of them may share a batch.

        Args:
            http_requests: the requests; one that :meth:`http_request` has not made is copied, with
                the limits of this model.
            send_ready: is called before explanations begin, with the responses that are ready.
        """
        responses: dict[int, HttpResponse] = {}
        groups: dict[Operation, _Group] = {}
        with meter.stage("read"):
            for number, http_request in enumerate(http_requests):
                protocol, parsed = self._parse(http_request)
                if isinstance(parsed, RequestError):
                    responses[number] = _error_response(protocol, http_request, parsed)
                else:
                    group = groups.setdefault(parsed.operation, _Group([], [], []))
                    group.parsed.append((number, protocol, parsed))
                    group.requests.extend(parsed.requests)
                    group.http_request_ids.extend([number] * len(parsed.requests))
        engine = self._engine
        runs: dict[Operation, Run] = {
            Operation.PREDICT: engine.predict,
            Operation.EXPLAIN: engine.explain,
            Operation.TOKENIZE: engine.tokenize,
            Operation.DETOKENIZE: engine.detokenize,
        }
        for operation, group in sorted(groups.items()):
            if operation is Operation.EXPLAIN and responses:
                send_ready(responses)
            run = runs[operation]
            all_outcomes = (
                run(group.requests, meter, deadline, group.http_request_ids)
                if group.requests
                else ()
            )
            outcomes = iter(all_outcomes)
            with meter.stage("write"):
                for number, protocol, parsed in group.parsed:
                    of_request = list(islice(outcomes, len(parsed.requests)))
                    responses[number] = self._write(protocol, parsed, of_request)
        errors = 0
        for response in responses.values():
            errors += response.status >= 400
        meter.count(requests=len(http_requests), errors=errors)
        return list(map(responses.__getitem__, range(len(http_requests))))

    def _parse(
        self, http_request: HttpRequest
    ) -> tuple[BaseProtocol, ParsedRequest | RequestError]:
        if http_request.limits is not self._limits:
            http_request = replace(http_request, limits=self._limits, reads_media=self._reads_media)
        protocol = attempt(self._recognise, http_request)
        if isinstance(protocol, RequestError):
            return self._protocols[-1], protocol
        return protocol, attempt(protocol.parse, http_request)

    def _recognise(self, http_request: HttpRequest) -> BaseProtocol:
        """Return the first protocol that recognises a request.

        If the path is a known route, the protocols with that path are asked first. If TorchServe
        has read the body as a JSON object, a protocol with body keys is asked only if one is in it.
        """
        for protocol in self._by_path.get(http_request.path, ()):
            if protocol.recognises(http_request):
                return protocol
        body = http_request.own_body
        for protocol in self._protocols:
            if protocol.body_keys is None or body is None:
                if protocol.recognises(http_request):
                    return protocol
                continue
            for key, kind in protocol.body_keys.items():
                if isinstance(body.get(key), kind) and key in body:
                    if protocol.recognises(http_request):
                        return protocol
                    break
        raise AssertionError("the last protocol recognises every request")

    def _write(
        self, protocol: BaseProtocol, parsed: ParsedRequest, outcomes: Sequence[Any]
    ) -> HttpResponse:
        response = attempt(self._response, protocol, parsed, outcomes)
        if isinstance(response, RequestError):
            response = _error_response(protocol, parsed.http_request, response)
        extra = parsed.http_request.response_headers
        return replace(response, headers={**response.headers, **extra}) if extra else response

    def _response(
        self, protocol: BaseProtocol, parsed: ParsedRequest, outcomes: Sequence[Any]
    ) -> HttpResponse:
        """Return the response from the outcome of each request; an error is raised."""
        if parsed.checks_health and (failure := self._engine.failure):
            raise failure
        errors = 0
        for outcome in outcomes:
            if isinstance(outcome, RequestError):
                errors += 1
                _shorten(outcome)
        is_explained = parsed.operation is Operation.EXPLAIN and errors < len(outcomes)
        if is_explained and prefers_page(parsed.http_request.header("accept")):
            results = [result_or_error_body(outcome) for outcome in parsed.by_item(outcomes)]
            views = protocol.model.explanation_views or target_view
            response = HttpResponse(render(results, views), content_type=HTML)
        else:
            response = protocol.write(parsed, outcomes)
        size, limit = len(response.body), self._limits.max_response_bytes
        if size > limit and not streaming_started(parsed.requests):
            raise RequestTooLarge(
                f"The response has {size:,} bytes, more than the server's max_response_size of"
                f" {limit:,}; ask for less."
            )
        return response


def _by_path(known: Sequence[BaseProtocol]) -> dict[str, list[BaseProtocol]]:
    """Return the protocols that may recognise each path of a route, in the order of all."""
    found: dict[str, list[BaseProtocol]] = {}
    for number, protocol in enumerate(known, 1):
        for path in protocol.paths or ():
            earlier = known[:number]
            found[path] = [each for each in earlier if each.paths is None or path in each.paths]
    return found


def _error_response(
    protocol: BaseProtocol, http_request: HttpRequest, error: RequestError
) -> HttpResponse:
    """Return the response to a request that failed as a whole."""
    _shorten(error)
    return protocol.error_response(http_request, error)


def _shorten(error: RequestError) -> None:
    """Cut the sentence of an error where it is long."""
    error.args = (shorten(str(error), MAX_SENTENCE),)
