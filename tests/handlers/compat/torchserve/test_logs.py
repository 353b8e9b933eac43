from __future__ import annotations

import logging
import socket
import struct

import pytest
from ts.metrics.caching_metric import CachingMetric
from ts.metrics.metric_type_enum import MetricTypes
from ts.protocol import otf_message_handler

from handlers.compat.torchserve.logs import INTERVAL, drop_receipts, limit_prediction_time


def test_the_receipt_of_a_batch_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    drop_receipts()
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.INFO)
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs:
            theirs.sendall(b"I" + struct.pack("!i", -1))
            otf_message_handler.retrieve_msg(ours)
        logging.getLogger().info("another line")
    finally:
        logging.getLogger().setLevel(level)
        logging.getLogger().removeHandler(handler)
    assert capfd.readouterr().err == "another line\n"


def test_torchserve_reports_the_gauge_of_a_batch_once_per_interval(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("handlers.compat.torchserve.logs.time.monotonic", lambda: now[0])
    monkeypatch.setattr("handlers.compat.torchserve.logs._once_per_interval._next_line", 0.0)
    prediction = CachingMetric("PredictionTime", "Milliseconds", [], MetricTypes.GAUGE)
    histogram = CachingMetric("PredictionTime", "Milliseconds", [], MetricTypes.HISTOGRAM)
    other = CachingMetric("QueueTime", "Milliseconds", [], MetricTypes.GAUGE)
    limit_prediction_time()
    limit_prediction_time()
    with caplog.at_level(logging.INFO, "ts.metrics.caching_metric"):
        for value in (1, 2, 3):
            for metric in (prediction, histogram, other):
                metric.add_or_update(value)
            now[0] += INTERVAL / 2
    lines = [line.removeprefix("[METRICS]").partition("|")[0] for line in caplog.messages]
    assert [line for line in lines if line.startswith("Q")] == [
        "QueueTime.Milliseconds:1",
        "QueueTime.Milliseconds:2",
        "QueueTime.Milliseconds:3",
    ]
    counts = [line.rpartition(":")[2] for line in lines if line.startswith("P")]
    # Both kinds of the first and third batch, and the histogram of the second.
    assert counts == ["1", "1", "2", "3", "3"]
