from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import ts
from ts.context import Context, RequestProcessor
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl

from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.torchserve import worker as worker_module
from hf_serve.handlers.transformers_handler import TransformersHandler
from tests.clock import Clock
from tests.sentences import refused
from tests.serving import read_json

SECRET = "Quimby"
METRICS = Path(ts.__file__).parent / "configs" / "metrics.yaml"
JSON = {"Content-Type": "application/json"}
Checkpoints = Callable[..., Path]


def context(folder: Path, config: Any) -> Context:
    """Return the context that TorchServe's worker passes to a handler."""
    metrics = MetricsCacheYamlImpl(str(METRICS))
    metrics.initialize_cache()
    metrics.model_name = "m"
    manifest = {"model": {"modelName": "m", "configFile": "my.yaml"}}
    return Context("m", str(folder), manifest, 4, None, "0.12.0", True, metrics, config)


@pytest.fixture
def worker(checkpoint: Checkpoints) -> tuple[TransformersHandler, Context]:
    folder = checkpoint("sequence_classification")
    config = {"handler": {"mode": "sequence_classification"}}
    made, handler = context(folder, config), TransformersHandler()
    handler.initialize(made)
    return handler, made


def send(worker: Any, *rows: tuple[dict[str, Any], dict[str, Any]]) -> list[Any]:
    handler, made = worker
    made.request_processor = [RequestProcessor(headers) for _, headers in rows]
    made.metrics.request_ids = {number: f"id-{number}" for number in range(len(rows))}
    return list(handler.handle([row for row, _ in rows], made))


@pytest.mark.parametrize(
    "keys", [{"handler": {"stored_responses": 5}}, {"continuousBatching": True}]
)
def test_a_second_worker_of_a_model_that_needs_one_does_not_load(
    tmp_path: Path, monkeypatch: Any, keys: dict[str, Any]
) -> None:
    monkeypatch.setattr(worker_module, "has_older_worker", lambda _: True)
    config = {**keys, "handler": {"mode": "text_generation", **keys.get("handler", {})}}
    (key,) = keys
    with refused(WrongConfig, key, "worker", "maxWorkers"):
        TransformersHandler().initialize(context(tmp_path, config))


def test_each_row_has_its_own_status_and_content_type(worker: Any) -> None:
    answers = send(
        worker,
        ({"body": {"inputs": "A fine film"}}, JSON),
        ({"body": bytearray(b"\xff")}, {}),
        ({"body": bytearray(b"A dull film")}, {"explain": "False"}),
        ({"body": {"inputs": "A fine film"}}, {**JSON, "explain": "True"}),
        ({"body": {"inputs": "A fine film"}}, {"explain": "True", "Accept": "text/html"}),
    )
    made = worker[1]
    assert [made.get_response_status(at)[0] for at in range(5)] == [200, 400, 200, 200, 200]
    types = [made.get_response_content_type(at) for at in range(5)]
    assert types[:4] == ["application/json"] * 4
    assert types[4].startswith("text/html")
    assert all(isinstance(answer, bytes) for answer in answers)
    assert read_json(answers[1])["code"] == 400


def test_a_row_over_grpc_ends_its_stream_and_is_sent_no_parts(
    worker: Any, monkeypatch: Any
) -> None:
    handler, made = worker
    received: list[HttpRequest] = []
    dispatch = handler.worker.dispatcher.dispatch

    def record(http_requests: list[HttpRequest], *rest: Any) -> Any:
        received.extend(http_requests)
        return dispatch(http_requests, *rest)

    monkeypatch.setattr(handler.worker.dispatcher, "dispatch", record)
    text = {"data": bytearray(b"A fine film")}
    send(worker, (text, {"data": {"content-type": ""}}), (text, {"Host": "h"}), ({}, {}))
    headers = [made.get_response_headers(at) for at in range(3)]
    assert [each.get("ts_stream_next") for each in headers] == ["false", None, "false"]
    assert [each.send is None for each in received] == [True, False, True]


@pytest.mark.parametrize(("body", "released"), [({"zz": "A fine film"}, 1), ("A film", 0)])
def test_memory_is_released_after_a_batch_with_a_refused_request(
    worker: Any, monkeypatch: Any, body: Any, released: int
) -> None:
    releases = list[None]()
    monkeypatch.setattr(worker[0].worker.freed_memory, "release", lambda: releases.append(None))
    send(worker, ({"body": body}, {}))
    assert len(releases) == released


@pytest.mark.parametrize(("explains", "seconds"), [("False", 96), ("True", 48)])
def test_a_batch_has_the_time_limit_of_the_yaml_which_a_sent_part_restarts(
    worker: Any, monkeypatch: Any, explains: str, seconds: int
) -> None:
    handler, made = worker
    time, ends, sent = Clock(), list[bool](), list[Any]()
    monkeypatch.setattr(
        "hf_serve.handlers.torchserve.worker.Deadline", partial(Deadline, clock=time)
    )
    monkeypatch.setattr(
        "hf_serve.handlers.torchserve.worker.send_intermediate_predict_response",
        lambda *message: sent.append(message),
    )

    def dispatch(http_requests: list[HttpRequest], _: Any, deadline: Deadline, *__: Any) -> Any:
        time.now += seconds - 1
        ends.append(deadline.passed)
        send_part = http_requests[0].send
        assert send_part
        send_part(HttpResponse(b"part"))
        time.now += seconds - 1
        ends.append(deadline.passed)
        time.now += 2
        ends.append(deadline.passed)
        return [HttpResponse(b"")]

    monkeypatch.setattr(handler.worker.dispatcher, "dispatch", dispatch)
    made.request_ids = {0: "id"}
    send(worker, ({"data": "A fine film"}, {"Host": "h", "explain": explains}))
    assert ends == [False, False, True]
    assert len(sent) == 1


class Frontend:
    """Receives the messages of a worker, as TorchServe's frontend does."""

    def __init__(self) -> None:
        self.messages: list[list[tuple[str, int, str | None, bytes]]] = []

    def sendall(self, message: bytes) -> None:
        stream = BytesIO(message)
        code = _integer(stream)
        assert (code, _bytes(stream)) == (200, b"Prediction success")
        rows = []
        while (length := _integer(stream)) >= 0:
            name = stream.read(length).decode()
            _bytes(stream)  # the content type
            status = _integer(stream)
            _bytes(stream)  # the phrase
            pairs = [(_bytes(stream), _bytes(stream)) for _ in range(_integer(stream))]
            next_part = {key.decode(): value.decode() for key, value in pairs}.get("ts_stream_next")
            rows.append((name, status, next_part, _bytes(stream)))
        self.messages.append(rows)


def _integer(stream: BytesIO) -> int:
    return int.from_bytes(stream.read(4), "big", signed=True)


def _bytes(stream: BytesIO) -> bytes:
    return stream.read(_integer(stream))


def test_predictions_leave_before_the_explanations_of_their_batch(
    worker: Any, monkeypatch: Any
) -> None:
    handler, made = worker
    made.cl_socket = Frontend()
    sent_before: list[int] = []
    explain = handler.engine.explain

    def explain_later(*arguments: Any) -> Any:
        sent_before.append(len(made.cl_socket.messages))
        return explain(*arguments)

    monkeypatch.setattr(handler.engine, "explain", explain_later)
    rows: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"body": {"inputs": "A fine film"}}, {"explain": "True", "Host": "h"}),
        ({"body": {"inputs": "A fine film"}}, {"Host": "h"}),
        ({"body": {"inputs": ""}}, {"Host": "h"}),
        ({"data": bytearray(b"by gRPC")}, {"data": {"content-type": ""}}),
    ]
    made.request_ids = dict(enumerate("abcd"))
    answers = send(worker, *rows)
    assert sent_before == [1]
    ((first, end),) = made.cl_socket.messages
    assert first[:3] == ("b", 200, "true") and read_json(first[3]) == read_json(answers[1])
    assert end == ("b", 200, "false", b"")
    # TorchServe sends the others at the end. An error has to wait, and gRPC has one message.
    assert made.request_ids == {0: "a", 2: "c", 3: "d"}
    assert [made.get_response_status(at)[0] for at in range(4)] == [200, 200, 400, 200]


def test_predictions_alone_are_sent_as_usual(worker: Any) -> None:
    worker[1].cl_socket = Frontend()
    send(worker, *[({"body": "A fine film"}, {"Host": "h"})] * 2)
    assert worker[1].cl_socket.messages == []


class Ended(Exception):
    """The process has ended."""


@pytest.fixture
def failing(worker: Any, monkeypatch: Any) -> Any:
    """A worker whose accelerator fails."""

    def end() -> None:
        raise Ended

    def fail(*_: Any) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr("hf_serve.handlers.torchserve.worker.end_worker", end)
    for name in ("forward", "forward_packed"):
        monkeypatch.setattr(worker[0].model, name, fail)
    return worker


def test_a_worker_whose_accelerator_failed_answers_503_and_ends(failing: Any) -> None:
    failing[1].cl_socket = Frontend()
    failing[1].request_ids = {0: "a", 1: "b"}
    with pytest.raises(Ended):
        send(failing, ({"body": "A fine film"}, {"Host": "h"}), ({"body": ""}, {"Host": "h"}))
    ((first, second, follows),) = failing[1].cl_socket.messages
    assert [each[:3] for each in (first, second)] == [("a", 503, None), ("b", 400, None)]
    assert "the worker starts again; send the request again" in read_json(first[3])["message"]
    # The batch must not end: TorchServe would collect the next one while the worker ends.
    assert follows == ("a", 503, "true", b"")


def test_responses_that_were_ready_before_the_failure_are_sent(
    failing: Any, monkeypatch: Any
) -> None:
    handler, made = failing
    made.cl_socket, made.request_ids = Frontend(), {0: "a", 1: "b"}

    def dispatch(http_requests: Any, meter: Meter, *_: Any) -> list[HttpResponse]:
        handler.engine.device_failed = True
        meter.count(errors=1)
        return [HttpResponse(b"{}"), HttpResponse(b"failed", 503)]

    monkeypatch.setattr(handler.worker.dispatcher, "dispatch", dispatch)
    with pytest.raises(Ended):
        send(failing, *[({"body": "A fine film"}, {"Host": "h"})] * 2)
    ready, failures = made.cl_socket.messages
    assert ready == [("a", 200, "true", b"{}"), ("a", 200, "false", b"")]
    assert failures == [("b", 503, None, b"failed"), ("b", 503, "true", b"")]


def test_a_worker_that_sent_responses_before_it_failed_ends_with_the_next_batch(
    failing: Any, monkeypatch: Any
) -> None:
    handler, made = failing
    made.cl_socket, made.request_ids = Frontend(), {0: "a", 1: "b"}
    fine, failed = HttpResponse(b"{}"), HttpResponse(b"{}", 503)

    def dispatch(*arguments: Any) -> list[HttpResponse]:
        arguments[-1]({0: fine})
        handler.engine.device_failed = True
        return [fine, failed]

    monkeypatch.setattr(handler.worker.dispatcher, "dispatch", dispatch)
    send(failing, *[({"body": "A fine film"}, {"Host": "h"})] * 2)
    assert made.request_ids == {1: "b"}
    with pytest.raises(Ended):
        send(failing, ({"body": "A fine film"}, {"Host": "h"}))


def test_a_worker_with_requests_by_grpc_ends_with_the_next_batch(failing: Any) -> None:
    row = ({"data": bytearray(b"A fine film")}, {"data": {"content-type": ""}})
    (answer,) = send(failing, row)
    assert read_json(answer)["code"] == 503
    with pytest.raises(Ended):
        send(failing, row)


@pytest.fixture
def ends(monkeypatch: Any) -> Any:
    """Record that the worker ends instead of ending it."""
    ends = list[None]()

    def end() -> None:
        ends.append(None)
        raise Ended

    monkeypatch.setattr("hf_serve.handlers.torchserve.worker.end_worker", end)
    return ends


def test_a_worker_that_fails_on_one_request_alone_goes_on(worker: Any, monkeypatch: Any) -> None:
    parse = worker[0].engine.task.parse

    def fail_on_poison(request: Any) -> Any:
        if "poison" in request.inputs:
            raise ValueError("a bug")
        return parse(request)

    monkeypatch.setattr(worker[0].engine.task, "parse", fail_on_poison)
    rows = [({"body": text}, {"Host": "h"}) for text in ("poison", "A fine film")]
    assert read_json(send(worker, *rows)[0])["code"] == 500
    assert worker[1].get_response_status(1)[0] == 200
    send(worker, rows[1])
    assert not worker[0].engine.device_failed


def test_a_worker_that_fails_on_the_sample_too_answers_and_ends(
    worker: Any, monkeypatch: Any, ends: Any
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("a bug")

    worker[1].cl_socket, worker[1].request_ids = Frontend(), {0: "a", 1: "b"}
    monkeypatch.setattr(worker[0].engine.task, "decode", fail)
    with pytest.raises(Ended):
        send(worker, ({"body": "A fine film"}, {"Host": "h"}), ({"body": ""}, {"Host": "h"}))
    ((first, second, _),) = worker[1].cl_socket.messages
    assert [first[1], second[1]] == [500, 400]
    assert ends


def test_a_batch_that_hangs_is_answered_and_its_worker_ends(
    worker: Any, monkeypatch: Any, ends: Any
) -> None:
    worker[1].cl_socket, worker[1].request_ids = Frontend(), {0: "a"}
    hanging = worker[0].worker.watchdog._on_hang

    def hang(*_: Any) -> Any:
        hanging()

    monkeypatch.setattr(worker[0].worker.dispatcher, "dispatch", hang)
    with pytest.raises(Ended):
        send(worker, ({"body": "A fine film"}, {"Host": "h"}))
    ((first, follows),) = worker[1].cl_socket.messages
    assert first[:3] == ("a", 503, None) and follows == ("a", 503, "true", b"")
    assert "took too long and its worker starts again" in read_json(first[3])["message"]


def test_a_model_that_cannot_answer_its_sample_is_not_served(
    checkpoint: Checkpoints, monkeypatch: Any
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr("hf_serve.handlers.tasks.sequence_classification.Task.decode", fail)
    folder = checkpoint("sequence_classification")
    handler: dict[str, Any] = {"mode": "sequence_classification"}
    with refused(WrongCheckpoint):
        TransformersHandler().initialize(context(folder, {"handler": handler}))
    served = {"handler": {**handler, "health_check": False}}
    TransformersHandler().initialize(context(folder, served))


def test_metrics_reach_torchserve(worker: Any, caplog: Any) -> None:
    with caplog.at_level(logging.INFO):
        send(worker, ({"body": "A fine film"}, {}), ({"body": ""}, {}))
    lines = [line for line in caplog.messages if "hf_" in line or "HandlerTime" in line]
    found = {line.split(".")[0].removeprefix("[METRICS]"): line for line in lines}
    counters = {f"hf_{name}_total" for name in ("requests", "errors", "rows", "tokens", "forwards")}
    times = {
        f"hf_{name}_time" for name in ("read", "parse", "encode", "forward", "decode", "write")
    }
    assert counters | times | {"hf_padding_share", "HandlerTime"} <= set(found)
    assert ":2|#ModelName:m," in found["hf_requests_total"]
    assert ":1|" in found["hf_errors_total"] and ":2|" in found["hf_batch_size"]


def test_no_log_contains_request_text(worker: Any, caplog: Any, capfd: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        send(
            worker,
            ({"body": {"inputs": SECRET}}, JSON),
            ({"body": {"inputs": SECRET, "parameters": {SECRET: 1}}}, JSON),
            ({SECRET: SECRET}, {}),
            ({"body": {"inputs": SECRET}}, {"explain": "True"}),
        )
    assert SECRET not in caplog.text + "".join(capfd.readouterr())


def test_memory_is_limited_before_the_first_operation_of_torch(
    checkpoint: Checkpoints, monkeypatch: Any
) -> None:
    calls: list[str] = []
    for module, name in (
        ("worker_start", "limit_memory_growth"),
        ("torchserve.worker", "ThreadShare"),
        ("worker_start", "Engine.load"),
    ):
        record = partial(lambda name, *_, **__: calls.append(name), name)
        monkeypatch.setattr(f"handlers.{module}.{name}", record)
    config = {"handler": {"mode": "sequence_classification"}}
    with pytest.raises(AttributeError):
        TransformersHandler().initialize(context(checkpoint("sequence_classification"), config))
    assert calls == ["limit_memory_growth", "ThreadShare", "Engine.load"]


def test_a_mistake_in_the_yaml_stops_the_worker_with_its_message(
    checkpoint: Checkpoints, caplog: Any
) -> None:
    folder = checkpoint("sequence_classification")
    for config in (None, {}, {"handler": {"mode": "x"}}):
        with refused(WrongConfig, "my.yaml", "handler"):
            TransformersHandler().initialize(context(folder, config))
    assert [line for line in caplog.messages if line.startswith("Model not loaded. my.yaml: ")]


def test_the_id_and_the_trace_of_a_failed_request_are_logged(
    worker: Any, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(worker[0].worker.dispatcher, "_recognise", lambda _: 1 / 0)
    monkeypatch.setattr(worker[0].engine, "check_health", lambda: None)
    worker[1].request_ids = {0: "a", 1: "b"}
    trace = "0af7651916cd43dd8448eb211c80319c"
    traced, forged = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}, {"traceparent": SECRET}
    send(worker, *[({"body": SECRET}, headers) for headers in (traced, forged)])
    lines = [line for line in caplog.messages if line.startswith("Request failed")]
    assert lines == [
        f"Request failed: request_id=a status=500 trace_id={trace}",
        "Request failed: request_id=b status=500",
    ]


def test_spans_are_made_where_the_environment_names_an_endpoint(
    checkpoint: Checkpoints, monkeypatch: Any
) -> None:
    recorded = list[Any]()

    class Recorder:
        def record(self, *spans: Any) -> None:
            recorded.append(spans)

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setattr("hf_serve.handlers.telemetry.tracing.create", lambda *_: Recorder())
    config = {"handler": {"mode": "sequence_classification"}}
    made, handler = context(checkpoint("sequence_classification"), config), TransformersHandler()
    handler.initialize(made)
    send((handler, made), ({"body": "A fine film"}, {}), ({"body": ""}, {"traceparent": "x"}))
    ((headers, statuses, meter),) = recorded
    assert (headers, statuses) == ([{}, {"traceparent": "x"}], [200, 400])
    names = [stage.name for stage in meter.stages]
    assert names.index("read") < names.index("encode") < names.index("forward")


def test_the_loader_finds_one_class_in_the_file() -> None:
    module = sys.modules[TransformersHandler.__module__]
    classes = [each for each in vars(module).values() if isinstance(each, type)]
    own = [each for each in classes if each.__module__ == module.__name__]
    assert own == [TransformersHandler]


@pytest.mark.parametrize(
    ("batch_size", "keys", "warned"), [(1, {}, True), (16, {}, False), (1, {"batchSize": 1}, False)]
)
def test_a_yaml_that_was_packed_without_a_batch_size_is_warned_of(
    checkpoint: Checkpoints, caplog: Any, batch_size: int, keys: Any, warned: bool
) -> None:
    mode = "sequence_classification"
    made = context(checkpoint(mode), {**keys, "handler": {"mode": mode}})
    made.system_properties["batch_size"] = batch_size
    TransformersHandler().initialize(made)
    assert ("Add batchSize: 16 and maxBatchDelay: 1" in caplog.text) == warned
