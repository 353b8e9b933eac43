"""A batch's cost as TorchServe metrics: they show on its Prometheus endpoint."""

from __future__ import annotations

import time
from typing import Any

from handlers.telemetry.meter import Meter

COUNTERS = ("requests", "errors", "rows", "tokens", "slots", "forwards")
# Each number is a line that the worker prints and the frontend parses while a request waits.
PAUSE = 1.0  # seconds; who scrapes sees the last value only


class MetricsReporter:
    """Gives counts of every batch, and now and then one batch's times, to TorchServe's metrics.

    Args:
        gauge: TorchServe's own word for a metric that goes up and down.
    """

    def __init__(self, gauge: Any) -> None:
        self._gauge = gauge
        self._known: set[str] = set()
        self._next = 0.0

    def report(self, metrics: Any, meter: Meter, seconds: float) -> None:
        """Tell of a batch.

        Args:
            metrics: the context's metrics object; None outside of TorchServe.
            meter: what the batch cost.
            seconds: the time that the handler took in all.
        """
        if metrics is None:
            return
        self._count(metrics, meter)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PAUSE
            self._show(metrics, meter, seconds)

    def _count(self, metrics: Any, meter: Meter) -> None:
        for name in COUNTERS:
            # A counter is there from the first batch on, if only as 0.
            if meter.counts[name] or name not in self._known:
                metrics.add_counter(f"hf_{name}_total", meter.counts[name], dimensions=[])
                self._known.add(name)

    def _show(self, metrics: Any, meter: Meter, seconds: float) -> None:
        size = meter.counts["requests"]
        metrics.add_metric("hf_batch_size", size, "count", None, [], self._gauge)
        for stage, spent in meter.seconds.items():
            metrics.add_time(f"hf_{stage}_time", _ms(spent), None, "ms", dimensions=[])
        metrics.add_percent("hf_padding_share", round(100 * meter.padding_share, 2), dimensions=[])
        metrics.add_time("HandlerTime", _ms(seconds), None, "ms", dimensions=[])


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
