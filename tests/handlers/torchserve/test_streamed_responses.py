"""Responses in parts, passed to a stand-in for TorchServe's `ContinuousBatching.java`."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest
from ts.context import Context, RequestProcessor
from ts.metrics.metric_type_enum import MetricTypes
from ts.protocol.otf_message_handler import create_predict_response

from hf_serve.handlers.generation.batch_scheduler import BatchScheduler
from hf_serve.handlers.process.resources import FreedMemory
from hf_serve.handlers.telemetry.metrics import MetricsReporter
from hf_serve.handlers.torchserve.streamed_responses import StreamedResponses
from hf_serve.handlers.torchserve.worker import Watchdog
from tests.serving import Served, read_json
from tests.threads import without_threads

HEADERS = {"Content-Type": "application/json", "explain": "False"}
GRPC = {"data": {"content-type": ""}}


@dataclass
class Sent:
    """What a client has received: the head of the first part, all bodies, and whether it ended."""

    status: int = 0
    body: bytes = b""
    parts: int = 0
    is_whole: bool = False
    ended: bool = False
    headers: dict[str, str] = field(default_factory=dict)


def read_message(message: bytes) -> Iterator[tuple[str, int, dict[str, str], bytes]]:
    """Yield id, status, headers and body of each prediction of a message."""
    stream = BytesIO(message)

    def number() -> int:
        return int(struct.unpack("!i", stream.read(4))[0])

    def text() -> str:
        return stream.read(number()).decode()

    assert number() == 200
    text()
    while (size := number()) != -1:
        request_id = stream.read(size).decode()
        text()  # the content type
        status = number()
        text()  # the reason phrase
        headers = {text(): text() for _ in range(number())}
        yield request_id, status, headers, stream.read(number())


class Frontend:
    """Passes all requests that are not finished in each call, as TorchServe does."""

    def __init__(self, served: Served) -> None:
        reporter = MetricsReporter(MetricTypes.GAUGE)
        self._responses = StreamedResponses(
            served.dispatcher,
            served.engine,
            reporter,
            FreedMemory(),
            Watchdog(math.inf, lambda: None),
        )
        self._context = Context("m", ".", {}, 8, None, "0.12.0", True, None, {})
        self.jobs: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.clients: dict[str, Sent] = {}

    def add(self, name: str, content: Any, headers: dict[str, Any] = HEADERS) -> None:
        self.jobs[name] = ({"body": content}, headers)
        self.clients[name] = Sent()

    def call(self) -> None:
        """Call the handler once, and pass on its message."""
        context, names = self._context, list(self.jobs)
        context.request_ids = dict(enumerate(names))
        context.request_processor = [RequestProcessor(dict(self.jobs[name][1])) for name in names]
        bodies = self._responses.handle([self.jobs[name][0] for name in names], context)
        assert len(bodies) == len(names)
        message = create_predict_response(bodies, context.request_ids, "", 200, context)
        for name, status, headers, body in read_message(message):
            self._pass_on(name, status, headers, body)

    def run(self) -> dict[str, Sent]:
        """Call the handler until no request is left; returns what each client received."""
        while self.jobs:
            self.call()
        return self.clients

    def _pass_on(self, name: str, status: int, headers: dict[str, str], body: bytes) -> None:
        sent, follows = self.clients[name], headers.get("ts_stream_next")
        assert not sent.ended or (follows == "false" and not body and sent.is_whole)
        if not sent.parts:
            assert follows != "false" or self.jobs[name][1] is GRPC, "the first part has no head"
            sent.status, sent.headers = status, headers
        sent.body, sent.parts = sent.body + body, sent.parts + 1
        sent.is_whole = sent.is_whole or follows is None
        sent.ended = sent.ended or follows != "true"
        own = self.jobs[name][1]
        self.jobs[name] = ({}, own)  # TorchServe sends a body until the first part.
        if follows == "false":
            del self.jobs[name]


@pytest.fixture
def classification(served: Callable[..., Served]) -> Frontend:
    return Frontend(served("sequence_classification"))


@pytest.fixture
def generation(served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> Frontend:
    """A model that runs the texts of several threads, as those with `continuousBatching` do."""
    model = served("text_generation")
    monkeypatch.setattr(model.engine, "model", BatchScheduler(model.engine.model, 8, 8))
    return Frontend(model)


def test_a_response_is_a_part_and_the_end(classification: Frontend) -> None:
    classification.add("a", {"inputs": "A fine film"})
    sent = classification.run()["a"]
    assert (sent.status, sent.parts, sent.is_whole) == (200, 2, False)
    assert read_json(sent.body)[0].keys() == {"label", "score"}


def test_an_error_is_a_whole_response(classification: Frontend) -> None:
    """TorchServe closes the connection after the head of an error."""
    classification.add("wrong", {"inputs": 3})
    classification.add("right", {"inputs": "A fine film"})
    sent = classification.run()
    assert sent["wrong"].is_whole
    assert (sent["wrong"].status, sent["right"].status) == (400, 200)
    assert read_json(sent["wrong"].body)["code"] == 400


@pytest.mark.parametrize(("content", "status"), [("A fine film", 200), (3, 400)])
def test_the_header_of_describe_calls_is_not_read_from_clients(
    classification: Frontend, content: Any, status: int
) -> None:
    """TorchServe sends no head before a part that ends a response, so the client would wait."""
    classification.add("a", {"inputs": content}, {**HEADERS, "describe": "True"})
    sent = classification.run()["a"]
    assert (sent.status, sent.is_whole) == (status, status == 400)


def test_a_request_by_grpc_has_one_message(classification: Frontend) -> None:
    classification.add("a", {"inputs": "A fine film"}, GRPC)
    sent = classification.run()["a"]
    assert (sent.parts, sent.status) == (1, 200)


def test_predictions_and_explanations_run_side_by_side(generation: Frontend) -> None:
    few = {"inputs": "A film", "parameters": {"max_new_tokens": 2}}
    generation.add("explained", few, {**HEADERS, "explain": "True"})
    generation.add("predicted", few)
    sent = generation.run()
    assert "importances" in read_json(sent["explained"].body)
    assert "generated_text" in read_json(sent["predicted"].body)[0]


def test_a_request_for_which_there_is_no_thread_is_refused(generation: Frontend) -> None:
    generation.add("a", {"inputs": "A film"})
    with without_threads():
        sent = generation.run()["a"]
    assert sent.status == 503 and sent.headers["Retry-After"] == "1"


def test_a_stream_comes_in_parts_and_equals_the_whole(generation: Frontend) -> None:
    parameters = {"max_new_tokens": 30, "return_full_text": False}
    body = {"inputs": "Once upon", "parameters": parameters}
    generation.add("stream", {**body, "stream": True})
    generation.add("whole", body)
    sent = generation.run()
    last = sent["stream"].body.rpartition(b"data: ")[2]
    [whole] = read_json(sent["whole"].body)
    assert read_json(last)["generated_text"] == whole["generated_text"]
    assert sent["stream"].parts > 2


def test_a_request_whose_client_has_gone_is_forgotten(generation: Frontend) -> None:
    generation.add("gone", {"inputs": "Once", "parameters": {"max_new_tokens": 60}})
    generation.call()
    generation.jobs.clear()
    generation.add("next", {"inputs": "Once", "parameters": {"max_new_tokens": 2}})
    assert generation.run()["next"].status == 200
    assert generation.clients["gone"].parts == 0
