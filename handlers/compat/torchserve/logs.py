"""The lines that TorchServe's worker logs for each batch."""

from __future__ import annotations

import time
from logging import Filter, LogRecord, getLogger

RECEIPT = "Backend received inference at: %d"
# TorchServe's gauge of the time of a batch. Its line has the ids of all requests of the batch.
PREDICTION_TIME = "[METRICS]PredictionTime."
GAUGE = "#type:GAUGE|"
# Seconds between two lines of the gauge.
INTERVAL = 1.0


def drop_receipts() -> None:
    """Drop the line that the worker logs for each batch.

    Breaks when the line has another text.
    """
    getLogger().addFilter(_is_no_receipt)


def _is_no_receipt(record: LogRecord) -> bool:
    return str(record.msg) != RECEIPT


class _OncePerInterval(Filter):
    """Passes one line of the gauge per interval, and all other lines."""

    _next_line = 0.0

    def filter(self, record: LogRecord) -> bool:
        line = str(record.msg)
        if not line.startswith(PREDICTION_TIME) or GAUGE not in line:
            return True
        if time.monotonic() < self._next_line:
            return False
        self._next_line = time.monotonic() + INTERVAL
        return True


_once_per_interval = _OncePerInterval()


def limit_prediction_time() -> None:
    """Have the worker report its gauge of the time of a batch once per interval.

    Breaks when the gauge is reported by another logger, or in another form.
    """
    getLogger("ts.metrics.caching_metric").addFilter(_once_per_interval)
