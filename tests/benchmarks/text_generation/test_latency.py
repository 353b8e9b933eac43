from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.contenders.base import ErrorResponse
from benchmarks.text_generation.contender import Job, Plan
from benchmarks.text_generation.latency import LongStreams, gauge, hang_ups, latency, staggered
from benchmarks.text_generation.models import word_tokenizer
from benchmarks.text_generation.streams import TextClient
from tests.benchmarks.text_generation.streaming_server import StreamingServer, streaming_server

VOCABULARY = 100
JOB = Job("model", Path("model"), VOCABULARY, Plan(clients=4, repeats=3, hang_ups=5))


@pytest.fixture
def server() -> Iterator[StreamingServer]:
    with streaming_server() as server:
        yield server


@pytest.fixture
def client(server: StreamingServer) -> TextClient:
    return TextClient("kit", server.url, word_tokenizer(VOCABULARY))


def test_first_streams_differ_in_length_and_later_ones_do_not() -> None:
    streams = staggered(4, VOCABULARY)
    assert [each[0].new_tokens for each in streams] == [32, 64, 96, 128]
    assert {request.new_tokens for each in streams for request in each[1:]} == {128}


def test_short_requests_are_measured_alone_and_beside_long_streams(
    client: TextClient, server: StreamingServer
) -> None:
    found = latency(client, JOB)
    assert found.idle_ms > 0 and found.busy_ms > 0
    assert 0 < found.gap_p50_ms <= found.gap_p99_ms
    asked = [body["parameters"]["max_new_tokens"] for body in server.received]
    assert asked[:3] == [5, 5, 5]
    assert asked.count(5) == 6
    assert server.most_running <= JOB.plan.clients


def test_gaps_are_those_within_a_stream_from_a_time_on(client: TextClient) -> None:
    streams = LongStreams(client, [], times=[[1.0, 2.0, 4.0], [5.0, 8.0]])
    assert streams.gaps(since=2.0) == [2.0, 3.0]


def test_a_long_stream_that_fails_fails_the_measurement(
    client: TextClient, server: StreamingServer
) -> None:
    server.is_full = True
    with (
        pytest.raises(ErrorResponse),
        LongStreams(client, staggered(2, VOCABULARY)).running(),
    ):
        pass


def test_a_worker_is_measured_before_and_after_clients_hang_up(
    client: TextClient, server: StreamingServer
) -> None:
    found = hang_ups(client, JOB, os.getpgid(0), f"{server.url}metrics")
    long = [body for body in server.received if body["parameters"]["max_new_tokens"] == 128]
    assert len(long) == found.clients == 5
    assert found.bytes_before > 0 and found.bytes_after > 0
    assert found.threads_before > 0 and found.threads_after > 0
    assert found.running_after == 2
    assert found.idle_ms > 0 and found.next_ms > 0 and found.after_ms > 0


def test_a_gauge_that_is_not_there_is_unknown() -> None:
    metrics = 'other{model="a"} 3.0\nrunning{model="a"} 1.0\nrunning{model="b"} 2.0\n'
    assert gauge(metrics, "running") == 3
    assert gauge(metrics, "run") is None
