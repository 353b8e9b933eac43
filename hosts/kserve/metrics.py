"""The metrics of models at `/metrics`, beside those of KServe's SDK and with the same label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kserve.metrics import EXPLAIN_HIST_TIME, PREDICT_HIST_TIME, get_labels
from prometheus_client import Counter, Gauge, Histogram

from handlers.telemetry.meter import Meter
from handlers.telemetry.metrics import MetricsReporter

LABELS = ("model_name",)
QUEUE_TIME = Histogram("request_queue_seconds", "time until the batch of a request begins", LABELS)
TOTAL = "_total"

_known: dict[str, Any] = {}


class ModelMetrics:
    """Counts and times of a model.

    Args:
        model: its name.
    """

    def __init__(self, model: str) -> None:
        self._labels = get_labels(model)
        self._reporter = MetricsReporter(gauge=None, interval=0.0)

    def report_batch(self, meter: Meter, seconds: float) -> None:
        """Report what the handler of TorchServe reports of a batch, under the same names."""
        self._reporter.report(self, meter, seconds)

    def observe_queue(self, seconds: float) -> None:
        """Report how long a request waited."""
        QUEUE_TIME.labels(**self._labels).observe(seconds)

    def observe_request(self, seconds: float, *, explains: bool) -> None:
        """Report how long a request took in all, as the SDK does for its own models."""
        histogram = EXPLAIN_HIST_TIME if explains else PREDICT_HIST_TIME
        histogram.labels(**self._labels).observe(seconds)

    def add_counter(self, name: str, value: float, **_: Any) -> None:
        """Count, as TorchServe's object of the same method does."""
        self._get(Counter, name.removesuffix(TOTAL)).inc(value)

    def add_metric(self, name: str, value: float, *_: Any) -> None:
        """Set a gauge."""
        self._get(Gauge, name).set(value)

    def add_time(self, name: str, value: float, *_: Any, **__: Any) -> None:
        """Set a gauge of milliseconds."""
        self._get(Gauge, name).set(value)

    def add_percent(self, name: str, value: float, **_: Any) -> None:
        """Set a gauge of percent."""
        self._get(Gauge, name).set(value)

    def _get(self, kind: Callable[..., Any], name: str) -> Any:
        if name not in _known:
            _known[name] = kind(name, "of the handler", LABELS)
        return _known[name].labels(**self._labels)
