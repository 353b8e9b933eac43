"""Counts and times of HTTP requests, in Prometheus' format."""

from __future__ import annotations

from prometheus_client import REGISTRY as MODELS
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

LABELS = ("api", "status")
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
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )

    def observe(self, api: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(api, status or CLIENT_GONE).inc()
        self._seconds.labels(api).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics of requests, and of the models in this process."""
        own: bytes = generate_latest(self._registry)
        return own + bytes(generate_latest(MODELS))
