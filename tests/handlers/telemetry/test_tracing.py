from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hf_serve.handlers.telemetry import tracing
from hf_serve.handlers.telemetry.tracing import TracedMeter, Tracer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
STAGES = ("read", "encode", "forward", "decode", "write")


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracer(provider, "m", "1.0")


def metered() -> TracedMeter:
    meter = TracedMeter()
    for name in STAGES:
        with meter.stage(name):
            pass
    return meter


def test_a_request_continues_its_trace_with_a_span_for_each_stage(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    tracer.record([{"Traceparent": TRACEPARENT, "explain": "False"}], [200], metered())
    *stages, request = sorted(
        exporter.get_finished_spans(), key=lambda span: span.name == "predict"
    )
    assert request.context and f"{request.context.trace_id:032x}" == TRACE
    assert request.parent and f"{request.parent.span_id:016x}" == PARENT
    assert [span.name for span in stages] == list(STAGES)
    assert request.attributes and request.attributes["http.response.status_code"] == 200
    for span in stages:
        assert span.parent and span.parent.span_id == request.context.span_id
        assert span.start_time and span.end_time and request.start_time and request.end_time
        assert request.start_time <= span.start_time <= span.end_time <= request.end_time


def test_the_time_in_the_queue_is_known_where_a_proxy_says_when_a_request_came(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    meter = metered()
    came = time.time() - 2
    headers = [f"t={came:.3f}", str(int(came * 1000)), "yesterday", f"t={came + 3600:.3f}"]
    tracer.record([{"X-Request-Start": value} for value in headers], [200] * 4, meter)
    queues = [span for span in exporter.get_finished_spans() if span.name == "queue"]
    assert len(queues) == 2
    for span in queues:
        assert span.start_time and span.end_time == meter.stages[0].start
        assert 1.9e9 < span.end_time - span.start_time < 60e9


def test_a_trace_that_is_not_sampled_has_no_spans(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    tracer.record([{"traceparent": f"00-{TRACE}-{PARENT}-00"}], [200], metered())
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize(("failed", "answered"), [(503, 200), (500, 499)])
def test_a_failed_request_is_an_error_and_its_neighbour_is_not(
    tracer: Tracer, exporter: InMemorySpanExporter, failed: int, answered: int
) -> None:
    tracer.record([{}, {"explain": "True"}], [failed, answered], metered())
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert not found["predict"].status.is_ok and found["explain"].status.is_ok
    first, second = found["predict"].context, found["explain"].context
    assert first and second and first.trace_id != second.trace_id


class Collector(BaseHTTPRequestHandler):
    """Receives spans as OTLP over HTTP."""

    received: list[Any] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sentiment")
    Collector.received = []
    yield Collector.received
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_are_sent_to_the_endpoint_of_the_environment(collector: list[Any]) -> None:
    created = tracing.create("m", "1.0")
    created.record([{"traceparent": TRACEPARENT}], [200], metered())
    created._provider.shutdown()
    ((path, request),) = collector
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert named["service.name"] == "sentiment"
    (scope,) = resource.scope_spans
    assert {span.name for span in scope.spans} == {"predict", *STAGES}


def test_traces_are_off_without_an_endpoint() -> None:
    assert not tracing.is_on({})
    assert tracing.is_on({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"})
