from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.text_generation.models import word_tokenizer
from benchmarks.text_generation.streams import TextClient, speed
from benchmarks.text_generation.workloads import GenerationRequest
from tests.benchmarks.text_generation.streaming_server import StreamingServer, streaming_server

REQUEST = GenerationRequest([5, 6], new_tokens=12)
TOKENIZER = word_tokenizer(100)


@pytest.fixture
def server() -> Iterator[StreamingServer]:
    with streaming_server() as server:
        yield server


@pytest.fixture
def client(server: StreamingServer) -> TextClient:
    return TextClient("kit", server.url, TOKENIZER)


def test_a_greedy_request_has_its_text_and_number_of_tokens(
    client: TextClient, server: StreamingServer
) -> None:
    client.generate(REQUEST)
    (body,) = server.received
    assert TOKENIZER(body["inputs"])["input_ids"] == REQUEST.prompt
    assert body["parameters"] == {
        "max_new_tokens": 12,
        "details": True,
        "logprobs": False,
        "return_full_text": False,
    }


def test_a_stream_yields_the_time_of_each_token(client: TextClient) -> None:
    times = list(client.stream(REQUEST))
    assert len(times) == 12
    assert times == sorted(times)


def test_a_client_that_stops_reading_closes_the_connection(
    client: TextClient, server: StreamingServer
) -> None:
    stream = client.stream(GenerationRequest([5], new_tokens=10**7))
    next(stream)
    stream.close()
    assert server.hung_up.acquire(timeout=60)


def test_speed_counts_the_tokens_of_all_requests(
    client: TextClient, server: StreamingServer
) -> None:
    found = speed(client.generate, [REQUEST] * 10, clients=3)
    assert found.tokens == 120
    assert found.tokens_per_second == pytest.approx(120 / found.seconds)
    assert len(server.received) == 10
    assert server.most_running <= 3
