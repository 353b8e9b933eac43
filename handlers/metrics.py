"""A batch's cost as TorchServe metrics: they show on its Prometheus endpoint."""

from __future__ import annotations

from typing import Any

from handlers.meter import Meter

COUNTERS = ("requests", "errors", "rows", "tokens", "slots", "forwards")


def report(metrics: Any, meter: Meter, seconds: float, gauge: Any) -> None:
    """Give a batch's counts and times to TorchServe's metrics cache.

    Args:
        metrics: the context's metrics object; None outside of TorchServe.
        meter: what the batch cost.
        seconds: the time that the handler took in all.
        gauge: TorchServe's own word for a metric that goes up and down.
    """
    if metrics is None:
        return
    for name in COUNTERS:
        metrics.add_counter(f"hf_{name}_total", meter.counts[name], dimensions=[])
    size = meter.counts["requests"]
    metrics.add_metric("hf_batch_size", size, "count", None, [], gauge)
    for stage, spent in meter.seconds.items():
        metrics.add_time(f"hf_{stage}_time", _ms(spent), None, "ms", dimensions=[])
    metrics.add_percent("hf_padding_share", round(100 * meter.padding_share, 2), dimensions=[])
    metrics.add_time("HandlerTime", _ms(seconds), None, "ms", dimensions=[])


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
