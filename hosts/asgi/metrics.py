"""Counts and times of HTTP requests, in Prometheus' format."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import REGISTRY as MODELS
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LABELS = ("api", "status")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# The client closed its connection before a response began.
CLIENT_GONE = 499


class HttpMetrics:
    """The metrics of an application, and of the models in this process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "http_requests", "answered requests", LABELS, registry=self._registry
        )
        self._seconds = Histogram(
            "http_request_seconds",
            "time until the last part of a response",
            ("api",),
            registry=self._registry,
            buckets=SECONDS,
        )
        self._model_seconds = Histogram(
            "http_model_request_seconds",
            "time until the last part of a response of a model",
            ("model",),
            registry=self._registry,
            buckets=SECONDS,
        )
        self._open = Gauge(
            "http_model_requests_in_progress",
            "requests to a model that wait or are computed",
            ("model",),
            registry=self._registry,
        )
        # A request may name a model that does not exist, which must not become a label for good.
        self._in_progress = Counts[str]()

    def observe(self, api: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(api, status or CLIENT_GONE).inc()
        self._seconds.labels(api).observe(seconds)

    def observe_model(self, model: str, seconds: float) -> None:
        """Count a request that a model has answered."""
        self._model_seconds.labels(model).observe(seconds)

    @contextmanager
    def in_progress(self, model: str) -> Iterator[None]:
        """Count a request to a model as open during the block."""
        self._in_progress[model] += 1
        try:
            yield
        finally:
            self._in_progress[model] -= 1
            if not self._in_progress[model]:
                del self._in_progress[model]

    def text(self) -> bytes:
        """Return the metrics of requests, and of the models in this process."""
        self._open.clear()
        for model, count in self._in_progress.items():
            self._open.labels(model).set(count)
        own: bytes = generate_latest(self._registry)
        return own + bytes(generate_latest(MODELS))
