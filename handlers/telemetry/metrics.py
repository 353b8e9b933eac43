"""TorchServe metrics of each batch, which its Prometheus endpoint exports."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from handlers.telemetry.meter import Meter

COUNTERS = ("requests", "errors", "rows", "tokens", "slots", "forwards")
# Seconds between gauge updates. The worker prints a line for each metric, which the frontend parses
# while requests wait, and Prometheus scrapes the last value only.
GAUGE_INTERVAL = 1.0


class MetricsReporter:
    """Reports the counts of every batch, and the times of one batch per `GAUGE_INTERVAL`.

    Args:
        gauge: TorchServe's `MetricTypes.GAUGE`.
    """

    def __init__(self, gauge: Any) -> None:
        self._gauge = gauge
        self._reported: set[str] = set()
        self._next_gauges = 0.0

    def report(
        self, metrics: Any, meter: Meter, seconds: float, load: Mapping[str, float] | None = None
    ) -> None:
        """Report the metrics of a batch.

        Args:
            metrics: the metrics object of TorchServe's context; None outside of TorchServe.
            meter: counts and stage times of the batch.
            seconds: total time of the handler.
            load: numbers about the running texts.
        """
        if metrics is None:
            return
        self._add_counters(metrics, meter)
        if time.monotonic() >= self._next_gauges:
            self._next_gauges = time.monotonic() + GAUGE_INTERVAL
            self._set_gauges(metrics, meter, seconds)
            for name, value in (load or {}).items():
                metrics.add_metric(f"hf_{name}", value, "count", None, [], self._gauge)

    def _add_counters(self, metrics: Any, meter: Meter) -> None:
        for name in COUNTERS:
            # Every counter is exported from the first batch on, with 0 if nothing was counted.
            if meter.counts[name] or name not in self._reported:
                metrics.add_counter(f"hf_{name}_total", meter.counts[name], dimensions=[])
                self._reported.add(name)

    def _set_gauges(self, metrics: Any, meter: Meter, seconds: float) -> None:
        size = meter.counts["requests"]
        metrics.add_metric("hf_batch_size", size, "count", None, [], self._gauge)
        for stage, duration in meter.seconds.items():
            metrics.add_time(f"hf_{stage}_time", _ms(duration), None, "ms", dimensions=[])
        metrics.add_percent("hf_padding_share", round(100 * meter.padding_share, 2), dimensions=[])
        metrics.add_time("HandlerTime", _ms(seconds), None, "ms", dimensions=[])


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
