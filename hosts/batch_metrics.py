"""What the handler of TorchServe reports of a batch, under the same names in Prometheus' format,
and how long requests take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from hf_serve.handlers.telemetry.metrics import MetricsReporter
from hf_serve.hosts.archive_handlers import BUCKETS, Meter

LABELS = ("model_name",)
TOTAL = "_total"
STAGE_LABELS = (*LABELS, "stage")
QUEUE_SECONDS = Histogram("request_queue_seconds", "time until the batch of a request", LABELS)
PREDICT_SECONDS = Histogram("request_predict_seconds", "time of a prediction in all", LABELS)
EXPLAIN_SECONDS = Histogram("request_explain_seconds", "time of an explanation in all", LABELS)

_known: dict[str, Any] = {}


class Reporter(MetricsReporter):
    """Reports each batch without histograms, which Prometheus' own client has."""

    def observe(self, meter: Meter, seconds: float) -> None:
        """Count nothing."""

    def add_histograms(self, metrics: Any) -> None:
        """Report nothing."""


class BatchMetrics:
    """Counts and times of the batches and requests of a model."""

    def __init__(self, model: str) -> None:
        self._labels = {LABELS[0]: model}
        self._reporter = Reporter(gauge=None, interval=0.0)

    def report_batch(self, meter: Meter, seconds: float) -> None:
        """Report the counts and stage times of a batch, and its seconds."""
        self._reporter.report(self, meter, seconds)
        histogram = partial(Histogram, buckets=BUCKETS)
        self._get(histogram, "hf_batch_seconds").observe(seconds)
        for stage, duration in meter.seconds.items():
            self._get(histogram, "hf_stage_seconds", STAGE_LABELS, stage=stage).observe(duration)

    def observe_queue(self, seconds: float) -> None:
        """Report how long a request waited for its batch."""
        QUEUE_SECONDS.labels(**self._labels).observe(seconds)

    def observe_request(self, seconds: float, *, explains: bool) -> None:
        """Report how long a request took in all."""
        histogram = EXPLAIN_SECONDS if explains else PREDICT_SECONDS
        histogram.labels(**self._labels).observe(seconds)

    def add_counter(self, name: str, value: float, **_: Any) -> None:
        """Count, as TorchServe's object of the same method does."""
        self._get(Counter, name.removesuffix(TOTAL)).inc(value)

    def add_metric(self, name: str, value: float, *_: Any, **__: Any) -> None:
        """Set a gauge."""
        self._get(Gauge, name).set(value)

    add_time = add_percent = add_metric

    def _get(
        self,
        kind: Callable[..., Any],
        name: str,
        labels: tuple[str, ...] = LABELS,
        **values: str,
    ) -> Any:
        if name not in _known:
            _known[name] = kind(name, "of the handler", labels)
        return _known[name].labels(**self._labels, **values)
