from __future__ import annotations

import logging
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any
from zipfile import ZipFile

import psutil
import pytest
import ts
import ts.model_server
import ts.model_service_worker
from ts.context import Context, RequestProcessor
from ts.metrics.caching_metric import CachingMetric
from ts.metrics.metric_type_enum import MetricTypes
from ts.protocol import otf_message_handler
from ts.service import Service

from hf_serve.handlers.compat import torchserve
from hf_serve.handlers.compat.torchserve import (
    FRONTEND,
    INTERVAL,
    WORKER_SCRIPT,
    BlockReader,
    count_workers,
    drop_receipts,
    has_older_worker,
    is_connected,
    log_prediction_time_less_often,
    read_messages_in_blocks,
    send_parts,
    worker_memory,
)
from hf_serve.handlers.http.request import HttpRequest, distinct_names
from tests.standins.workers import running_launcher, running_workers


def test_the_memory_of_other_processes_is_not_that_of_a_worker(tmp_path: Path) -> None:
    with running_workers(tmp_path, 1) as (worker,):
        assert worker_memory(worker.pid) > 1_000_000
    assert worker_memory(worker.pid) == 0
    assert worker_memory(psutil.Process().pid) == 0


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
    monkeypatch.setattr("hf_serve.handlers.compat.torchserve.time.monotonic", lambda: now[0])
    monkeypatch.setattr("hf_serve.handlers.compat.torchserve._once_per_interval._next_line", 0.0)
    prediction = CachingMetric("PredictionTime", "Milliseconds", [], MetricTypes.GAUGE)
    histogram = CachingMetric("PredictionTime", "Milliseconds", [], MetricTypes.HISTOGRAM)
    other = CachingMetric("QueueTime", "Milliseconds", [], MetricTypes.GAUGE)
    log_prediction_time_less_often()
    log_prediction_time_less_often()
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


# TorchServe's worker decodes bodies of JSON and of text unless it is `false`.
DECODE_VARIABLE = "TS_DECODE_INPUT_REQUEST"
END = struct.pack("!i", -1)
Pair = tuple[socket.socket, socket.socket]
Read = Callable[[socket.socket], tuple[bytes, Any]]


def field(content: bytes) -> bytes:
    return struct.pack("!i", len(content)) + content


def request(number: int, body: bytes, content_type: bytes = b"image/png") -> bytes:
    header = field(b"Host") + field(b"h") + field(b"empty") + field(b"")
    parameter = field(b"body") + field(content_type) + field(body)
    return field(b"%036d" % number) + header + END + parameter + END


def message(*requests: bytes) -> bytes:
    return b"I" + b"".join(requests) + END


def parsed(number: int, body: Any, content_type: str = "image/png") -> dict[str, Any]:
    """Return a request as TorchServe's worker has it."""
    return {
        "requestId": b"%036d" % number,
        "headers": [{"name": b"Host", "value": b"h"}, {"name": b"empty", "value": b""}],
        "parameters": [{"name": "body", "contentType": content_type, "value": body}],
    }


@contextmanager
def closing_pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture(params=["false", "true"])
def decode(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The value of decode_input_request in config.properties."""
    monkeypatch.setenv(DECODE_VARIABLE, request.param)
    return str(request.param)


@pytest.fixture
def read(decode: str, monkeypatch: pytest.MonkeyPatch) -> Read:
    """TorchServe's function as the handler changes it."""
    for name in ("_retrieve_buffer", "_retrieve_inference_msg"):
        monkeypatch.setattr(otf_message_handler, name, getattr(otf_message_handler, name))
    read_messages_in_blocks(distinct_names)
    read_messages_in_blocks(distinct_names)  # for each model of a process
    return otf_message_handler.retrieve_msg


def read_all(read: Read, messages: Sequence[bytes]) -> list[Any]:
    """Return the requests of messages that are sent at once."""
    with closing_pair() as (ours, theirs):
        Thread(target=theirs.sendall, args=(b"".join(messages),), daemon=True).start()
        found = [read(ours) for _ in messages]
    assert all(command == b"I" for command, _ in found)
    return [requests for _, requests in found]


def test_messages_are_read_as_they_were_sent(read: Read) -> None:
    large = b"b" * 3_000_000
    messages = [message(request(1, b"1"), request(2, large), request(3, b"")), message()]
    expected = [[parsed(1, b"1"), parsed(2, large), parsed(3, b"")], []]
    # A worker has one connection, and a new one begins with nothing unread.
    for _ in range(2):
        assert read_all(read, messages) == expected


def test_a_body_is_decoded_as_torchserve_is_told(decode: str, read: Read) -> None:
    body, kind = "é".encode(), "text/plain"
    (found,) = read_all(read, [message(request(1, body, kind.encode()))])
    assert found == [parsed(1, body.decode() if decode == "true" else body, kind)]
    assert isinstance(found[0]["parameters"][0]["value"], str if decode == "true" else bytearray)


def test_fields_of_one_name_are_all_in_the_row(read: Read) -> None:
    """TorchServe's worker makes a dictionary of them."""
    fields = [(b"image", b"image/png", b"1"), (b"a", b"", b"x"), (b"image", b"image/gif", b"2")]
    parameters = b"".join(field(part) for each in fields for part in each)
    content = field(b"%036d" % 1) + END + parameters + END
    (found,) = read_all(read, [message(content)])
    headers, (row,), _ = Service.retrieve_data_for_inference(found)
    http_request = HttpRequest(row, headers[0]._request_header, reads_media=True)
    assert http_request.content == {"image": [b"1", b"2"], "a": "x"}


def test_a_message_that_comes_in_pieces_is_read_whole(read: Read) -> None:
    content = message(request(1, b"ab"), request(2, b"c"))

    def send(theirs: socket.socket) -> None:
        for byte in content:
            theirs.sendall(bytes([byte]))

    with closing_pair() as (ours, theirs):
        Thread(target=send, args=(theirs,), daemon=True).start()
        assert read(ours) == (b"I", [parsed(1, b"ab"), parsed(2, b"c")])


def test_a_message_is_received_in_blocks(read: Read) -> None:
    """TorchServe's own function receives each of its fields alone."""

    class Counting(socket.socket):
        calls = 0

        def recv_into(self, *arguments: Any, **options: Any) -> int:
            type(self).calls += 1
            return super().recv_into(*arguments, **options)

    ours, theirs = socket.socketpair()
    with Counting(fileno=ours.detach()) as counting, theirs:
        theirs.sendall(message(*[request(number, b"a") for number in range(32)]))
        (_, requests) = read(counting)
    assert len(requests) == 32
    assert Counting.calls < 5


@pytest.mark.parametrize("length", [0, 20])
def test_the_worker_ends_with_torchserve(length: int) -> None:
    with closing_pair() as (ours, theirs):
        theirs.sendall(request(1, b"a")[:length])
        theirs.close()
        with pytest.raises(SystemExit) as ended:
            BlockReader().read(ours, 30)
    assert ended.value.code == 0


def test_a_row_can_have_two_parts_in_a_message() -> None:
    processors = [RequestProcessor({}) for _ in range(3)]
    context = Context("model", ".", {}, 3, None, None, None)
    context.request_ids, context.request_processor = {0: "a", 1: "b", 2: "c"}, processors
    parts = [(1, b"part", True), (2, b"whole", None), (1, b"end", False)]
    assert not is_connected(context)
    with closing_pair() as (ours, theirs):
        context.cl_socket = ours
        assert is_connected(context)
        send_parts(context, parts)
        content = theirs.recv(1 << 16)
    assert read_response(BytesIO(content)) == [
        ("b", "true", b"part"),
        ("c", None, b"whole"),
        ("b", "false", b"end"),
    ]
    assert context.stopping_criteria is None


def read_response(content: BytesIO) -> list[tuple[str, str | None, bytes]]:
    """Return the request id, `ts_stream_next` and the body of each part of a message."""

    def number() -> int:
        return int(struct.unpack("!i", content.read(4))[0])

    def text() -> str:
        return content.read(number()).decode()

    status, phrase = number(), text()
    assert (status, phrase) == (200, "Prediction success")
    found = []
    while (length := number()) >= 0:
        request_id, _type, _status, _phrase = (
            content.read(length).decode(),
            text(),
            number(),
            text(),
        )
        headers = {text(): text() for _ in range(number())}
        found.append((request_id, headers.get("ts_stream_next"), content.read(number())))
    return found


def test_workers_of_other_models_and_launchers_are_not_counted(
    model_folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with (
        running_workers(model_folder, 2),
        running_workers(other, 1),
        running_launcher(model_folder),
    ):
        assert count_workers() == 2


def test_of_several_workers_the_first_one_has_no_older_one(model_folder: Path) -> None:
    with running_workers(model_folder, 3) as started:
        processes = [psutil.Process(each.pid) for each in started]
        found = [has_older_worker(process) for process in processes]
    assert found == [False, True, True]


def test_workers_of_another_server_are_not_older_ones(model_folder: Path) -> None:
    """A shell stands in for the other server; its worker starts last."""
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with (
        running_workers(model_folder, 1),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell,
    ):
        assert shell.stdout is not None
        other = psutil.Process(int(shell.stdout.readline()))
        try:
            assert has_older_worker(psutil.Process(shell.pid))
            assert not has_older_worker(other)
        finally:
            other.kill()


TORCHSERVE = Path(ts.__file__).parent
LOG = """\
10:00 [INFO ] W-9000-qa_large_1.0-stdout MODEL_LOG - [PID]123
10:00 [INFO ] W-9000-qa_large_1.0-stderr MODEL_LOG - KeyError: 'x'
10:01 [ERROR] W-9000-qa_large_1.0 org.pytorch.serve.wlm.WorkerThread - Backend worker error
org.pytorch.serve.wlm.WorkerInitializationException: Backend worker startup time out.
10:01 [INFO ] W-9000-qa_large_1.0 org.pytorch.serve.wlm.WorkerThread - Retry worker: 9000 in 1
10:02 [WARN ] main org.pytorch.serve.ModelServer - Failed to load model: qa.mar
java.util.zip.ZipException: unexpected EOF
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (torchserve.LOAD_TIMEOUT, "wlm/WorkerThread"),
        ("Retry worker", "wlm/WorkerThread"),
        ("Backend worker error", "wlm/WorkerThread"),
        (torchserve.START_TIMEOUT, "wlm/WorkerLifeCycle"),
        (WORKER_SCRIPT, "wlm/WorkerLifeCycle"),
        ("MODEL_LOG", "wlm/WorkerLifeCycle$ReaderThread"),
        ("Failed to load model", "ModelServer"),
        ("TS_CONFIG_FILE", "util/ConfigManager"),
        ("PYTHONPATH", "util/messages/EnvironmentUtils"),
    ],
)
def test_torchserve_has_the_text(text: str, name: str) -> None:
    with ZipFile(TORCHSERVE / "frontend" / "model-server.jar") as jar:
        assert text.encode() in jar.read(f"org/pytorch/serve/{name}.class")


def test_torchserve_is_started_with_this_class_and_option() -> None:
    command = Path(ts.model_server.__file__).read_text(encoding="utf-8")
    assert f'"{FRONTEND}"' in command and '"-f"' in command


def test_a_worker_writes_its_process_id() -> None:
    assert '"[PID]%d"' in Path(ts.model_service_worker.__file__).read_text(encoding="utf-8")


def test_the_lines_of_a_log_are_those_of_its_models() -> None:
    model = "qa_large"
    assert torchserve.worker_output(LOG) == {model: ["[PID]123", "KeyError: 'x'"]}
    assert torchserve.models_with_exited_workers(LOG) == {model}
    assert torchserve.worker_errors(LOG) == {model: torchserve.START_TIMEOUT}
    assert list(torchserve.worker_pids(LOG)) == [(model, "123")]
    assert torchserve.archive_errors(LOG) == {"qa.mar": "ZipException: unexpected EOF"}


def test_a_console_has_the_first_error() -> None:
    text = "Picked up options\nError: Could not find or load main class\nException in main\n"
    assert torchserve.console_error(text) == "Error: Could not find or load main class"
    assert torchserve.console_error("Picked up options\n") is None


@pytest.mark.parametrize(
    ("error", "follows"),
    [
        ("RuntimeError: 503 - Service Unavailable", True),
        ("ModuleNotFoundError: No module named 'ts.torch_handler.handler'", True),
        ("ModuleNotFoundError: No module named 'yaml'", False),
        ("RuntimeError: 5 rows", False),
    ],
)
def test_an_error_that_another_one_has_caused_is_known(error: str, *, follows: bool) -> None:
    assert torchserve.is_follow_up(error) == follows
