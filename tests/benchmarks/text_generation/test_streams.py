from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from benchmarks.contenders.base import ErrorResponse, NoResponse
from benchmarks.text_generation.models import word_tokenizer
from benchmarks.text_generation.streams import IncompleteText, TextClient, speed
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


def test_a_sampled_request_has_its_temperature_and_seed_and_the_whole_vocabulary(
    client: TextClient,
) -> None:
    parameters = client.body(GenerationRequest([5], 3, temperature=0.7, seed=9))["parameters"]
    assert parameters["do_sample"] is True
    assert (parameters["temperature"], parameters["seed"], parameters["top_k"]) == (0.7, 9, 0)


def test_a_stream_yields_the_time_of_each_token(client: TextClient) -> None:
    times = list(client.stream(REQUEST))
    assert len(times) == 12
    assert times == sorted(times)


@pytest.mark.parametrize("send", [TextClient.generate, TextClient.read_stream])
def test_fewer_tokens_than_asked_for_are_an_error(
    client: TextClient,
    server: StreamingServer,
    send: Callable[[TextClient, GenerationRequest], None],
) -> None:
    server.missing = 1
    with pytest.raises(IncompleteText, match=r'12 tokens .*"generated_tokens": 11'):
        send(client, REQUEST)


@pytest.mark.parametrize("send", [TextClient.generate, TextClient.read_stream])
def test_an_error_response_and_a_missing_one_are_errors(
    client: TextClient,
    server: StreamingServer,
    send: Callable[[TextClient, GenerationRequest], None],
) -> None:
    server.is_full = True
    with pytest.raises(ErrorResponse, match=r"^kit responded with status 503"):
        send(client, REQUEST)
    lost = TextClient("kit", "http://127.0.0.1:1/", TOKENIZER)
    with pytest.raises(NoResponse):
        send(lost, REQUEST)


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


def test_a_failed_request_fails_the_measurement(
    client: TextClient, server: StreamingServer
) -> None:
    server.is_full = True
    with pytest.raises(ErrorResponse):
        speed(client.generate, [REQUEST] * 100, clients=2)
    assert len(server.received) < 100
