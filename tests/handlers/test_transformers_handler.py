from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ts
from ts.context import Context, RequestProcessor
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl

from handlers.errors import WrongConfig
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.runtime.deadline import Deadline
from handlers.transformers_handler import TransformersHandler
from tests.clock import Clock
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
    dispatch = handler.dispatcher.dispatch

    def record(http_requests: list[HttpRequest], *rest: Any) -> Any:
        received.extend(http_requests)
        return dispatch(http_requests, *rest)

    monkeypatch.setattr(handler.dispatcher, "dispatch", record)
    text = {"data": bytearray(b"A fine film")}
    send(worker, (text, {"data": {"content-type": ""}}), (text, {"Host": "h"}), ({}, {}))
    headers = [made.get_response_headers(at) for at in range(3)]
    assert [each.get("ts_stream_next") for each in headers] == ["false", None, "false"]
    assert [each.send is None for each in received] == [True, False, True]


def test_a_batch_has_the_time_limit_of_the_yaml_which_a_sent_part_restarts(
    worker: Any, monkeypatch: Any
) -> None:
    handler, made = worker
    time, ends, sent = Clock(), list[bool](), list[Any]()
    monkeypatch.setattr("handlers.transformers_handler.Deadline", partial(Deadline, clock=time))
    monkeypatch.setattr(
        "handlers.transformers_handler.send_intermediate_predict_response",
        lambda *message: sent.append(message),
    )

    def dispatch(http_requests: list[HttpRequest], _meter: Any, deadline: Deadline) -> Any:
        time.now += 47  # of the 48 s that are the default
        ends.append(deadline.passed)
        send_part = http_requests[0].send
        assert send_part
        send_part(HttpResponse(b"part"))
        time.now += 47
        ends.append(deadline.passed)
        time.now += 2
        ends.append(deadline.passed)
        return [HttpResponse(b"")]

    monkeypatch.setattr(handler.dispatcher, "dispatch", dispatch)
    made.request_ids = {0: "id"}
    send(worker, ({"data": "A fine film"}, {"Host": "h"}))
    assert ends == [False, False, True]
    assert len(sent) == 1


def test_a_worker_whose_accelerator_failed_answers_503_and_ends(
    worker: Any, monkeypatch: Any
) -> None:
    handler, made = worker
    ended: list[Any] = []
    monkeypatch.setattr("handlers.transformers_handler.end_after_response", ended.append)

    def fail(*_: Any) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")

    send(worker, ({"body": "A fine film"}, {}))
    assert not ended
    for name in ("forward", "forward_packed"):
        monkeypatch.setattr(handler.model, name, fail)
    made.cl_socket = "connection"
    first, _ = send(worker, ({"body": "A fine film"}, {}), ({"body": "A dull film"}, {}))
    assert [made.get_response_status(at)[0] for at in range(2)] == [503, 503]
    assert "the worker starts again; send the request again" in read_json(first)["message"]
    assert ended == ["connection"]


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


def test_metrics_are_counted_batch_by_batch(worker: Any, caplog: Any) -> None:
    send(worker, ({"body": "A fine film"}, {}), ({"body": "A dull film"}, {}))
    with caplog.at_level(logging.INFO):
        send(worker, ({"body": "A fine film"}, {}))
    (line,) = [line for line in caplog.messages if "hf_rows_total" in line]
    assert ":1|" in line


def test_times_are_logged_at_intervals_and_zeros_are_not_logged(
    worker: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handlers.telemetry.metrics.GAUGE_INTERVAL", 3600)
    send(worker, ({"body": "A fine film"}, {}))
    with caplog.at_level(logging.INFO):
        send(worker, ({"body": "A fine film"}, {}))
    logged = "".join(caplog.messages)
    assert "hf_rows_total" in logged
    assert not any(name in logged for name in ("hf_forward_time", "HandlerTime", "hf_errors_total"))


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


def test_a_mistake_in_the_yaml_stops_the_worker_with_its_message(
    checkpoint: Checkpoints, caplog: Any
) -> None:
    folder = checkpoint("sequence_classification")
    for config in (None, {}, {"handler": {"mode": "x"}}):
        with pytest.raises(WrongConfig, match=r"^my\.yaml: .*sequence_classification"):
            TransformersHandler().initialize(context(folder, config))
    assert [line for line in caplog.messages if line.startswith("Model not loaded. my.yaml: ")]


def test_the_loader_finds_one_class_in_the_file() -> None:
    module = sys.modules[TransformersHandler.__module__]
    classes = [each for each in vars(module).values() if isinstance(each, type)]
    own = [each for each in classes if each.__module__ == module.__name__]
    assert own == [TransformersHandler]
