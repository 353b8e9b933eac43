"""OpenTelemetry traces: a span for each request, with one for each stage of its batch below it.

They are on where the environment names an OTLP endpoint, as OpenTelemetry's own variables do. A
request with a W3C `traceparent` continues its trace; the sampler decides about the others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from .metrics import Meter

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PACKAGE = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
INSTALL = "install it with pip install 'transformers-on-torchserve[tracing]'"
SERVICE = "transformers-on-torchserve"
CONTEXT_HEADERS = ("traceparent", "tracestate")
# Set by a proxy: seconds or milliseconds since 1970, as `t=1700000000.123`.
START_HEADER = "x-request-start"
START = re.compile(r"(?:t=)?(\d{9,10}(?:\.\d{1,6})?|\d{12,13})")
LONGEST_QUEUE = 3600.0
# Spans of a stage that runs once for each forward pass.
MAX_STAGES = 100


class Stage(NamedTuple):
    """When a stage ran, in nanoseconds since 1970."""

    name: str
    start: int
    end: int


class TracedMeter(Meter):
    """A meter that also keeps when each stage ran."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[Stage] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the duration of the block to a stage, and keep when it ran."""
        start = time.time_ns()
        with super().stage(name):
            try:
                yield
            finally:
                if len(self.stages) < MAX_STAGES:
                    self.stages.append(Stage(name, start, time.time_ns()))


class Tracer:
    """Makes spans of requests that were answered.

    Args:
        provider: OpenTelemetry's provider of tracers.
    """

    def __init__(self, provider: Any, model: str, version: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE)
        self._trace = import_module("opentelemetry.trace")
        propagation = import_module("opentelemetry.trace.propagation.tracecontext")
        self._propagator = propagation.TraceContextTextMapPropagator()
        self._attributes = {"model.name": model, "model.version": version}

    def record(
        self, headers: Sequence[Mapping[str, Any]], statuses: Sequence[int], meter: TracedMeter
    ) -> None:
        """Record the spans of the requests of a batch, which share its stages.

        Args:
            meter: counts and stages of the batch.
        """
        if not meter.stages:
            return
        start, end = meter.stages[0].start, max(stage.end for stage in meter.stages)
        for own, status in zip(headers, statuses, strict=True):
            self._record(own, status, meter, start, end, len(statuses))

    def _record(
        self,
        headers: Mapping[str, Any],
        status: int,
        meter: TracedMeter,
        start: int,
        end: int,
        batch_size: int,
    ) -> None:
        lower = {name.lower(): value for name, value in headers.items() if isinstance(value, str)}
        carrier = {name: lower[name] for name in CONTEXT_HEADERS if name in lower}
        received = _received(lower.get(START_HEADER, ""), start)
        span = self._tracer.start_span(
            "explain" if lower.get("explain") == "True" else "predict",
            context=self._propagator.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            start_time=received or start,
            attributes={
                **self._attributes,
                "http.response.status_code": status,
                "batch.size": batch_size,
                "batch.tokens": meter.counts["tokens"],
            },
        )
        if span.is_recording():
            if status >= 500:
                span.set_status(self._trace.StatusCode.ERROR)
            parent = self._trace.set_span_in_context(span)
            queue = [Stage("queue", received, start)] if received else []
            for stage in [*queue, *meter.stages]:
                child = self._tracer.start_span(stage.name, parent, start_time=stage.start)
                child.end(stage.end)
        span.end(end)


def is_on(environment: Mapping[str, str]) -> bool:
    """Return whether the environment names an endpoint for traces."""
    return any(environment.get(name) for name in ENDPOINTS)


def create(model: str, version: str) -> Tracer:
    """Return the tracer of this process, which sends spans from a separate thread.

    Raises:
        ImportError: a package of OpenTelemetry is missing.
    """
    sdk = import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    resources = import_module("opentelemetry.sdk.resources")
    otlp = import_module(PACKAGE)
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    detected = resources.OTELResourceDetector().detect()
    resource = resources.Resource.create({"service.name": SERVICE}).merge(detected)
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return Tracer(provider, model, version)


def _received(header: str, start: int) -> int | None:
    """Return when a proxy received a request, in nanoseconds; None if it does not say it."""
    match = START.fullmatch(header.strip())
    if not match:
        return None
    number = float(match[1])
    seconds = number if number < 1e11 else number / 1000
    received = int(seconds * 1e9)
    return received if 0 <= start - received <= LONGEST_QUEUE * 1e9 else None
