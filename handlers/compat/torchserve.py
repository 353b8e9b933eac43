"""What is private or undocumented in TorchServe 0.12.

The worker's modules, which import torch, are imported where they are changed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader
from itertools import pairwise
from logging import Filter, LogRecord, getLogger
from pathlib import Path
from socket import socket
from typing import Any, cast

import psutil

# Messages between TorchServe and its worker: `ts/protocol/otf_message_handler.py`

logger = logging.getLogger(__name__)

BLOCK = 1 << 16

Rename = Callable[[Iterable[str]], Iterable[str]]


class BlockReader:
    """Reads a connection in blocks.

    TorchServe's worker reads each number and each header with one system call: 1,200 calls
    for 32 requests, while other threads of the worker take turns with it. In blocks, 32 requests
    take 0.5 instead of 1.4 ms, and 0.5 instead of 3.6 ms beside another thread.
    """

    def __init__(self) -> None:
        self._connection: socket | None = None
        self._file: BufferedReader

    def read(self, connection: socket, length: int) -> bytearray:
        """Return a number of bytes; end the process where TorchServe has gone, as its worker does.

        Breaks when TorchServe reads a part of a message in another way.
        """
        if connection is not self._connection:
            self._connection = connection
            self._file = cast("BufferedReader", connection.makefile("rb", BLOCK))
        data = bytearray(length)
        if self._file.readinto(data) < length:
            logger.info("Frontend disconnected.")
            sys.exit(0)
        return data


def read_messages_in_blocks(rename: Rename) -> None:
    """Have TorchServe's worker read all further messages in blocks, and rename their fields.

    The worker makes a dictionary of the fields of a request, so that fields need different names.

    Args:
        rename: returns the names of the fields of a request.

    Breaks when the worker reads messages by other functions than `_retrieve_inference_msg` and
    `_retrieve_buffer`, or requests by another one than `_retrieve_request`.
    """
    from ts.protocol import otf_message_handler  # noqa: PLC0415 - imports torch

    otf_message_handler._retrieve_buffer = BlockReader().read
    otf_message_handler._retrieve_inference_msg = partial(
        _read_requests, otf_message_handler._retrieve_request, rename
    )


def _read_requests(
    read_request: Callable[[socket], dict[str, Any] | None], rename: Rename, connection: socket
) -> list[dict[str, Any]]:
    requests = []
    while (request := read_request(connection)) is not None:
        fields = request["parameters"]
        for field, name in zip(fields, rename(field["name"] for field in fields), strict=True):
            field["name"] = name
        requests.append(request)
    return requests


def is_connected(context: Any) -> bool:
    """Return whether a handler can send parts of responses to TorchServe.

    Breaks when the connection is not `cl_socket` of the context.
    """
    return getattr(context, "cl_socket", None) is not None


def send_parts(context: Any, parts: Sequence[tuple[int, bytes, bool | None]]) -> None:
    """Send a message with parts of responses, whose heads are in the context.

    Args:
        parts: the row, the part of its response, and whether another part follows; None for a whole
            response. A row can have two parts.

    Breaks when `create_predict_response` takes the head of a negative index from elsewhere than the
    end of the rows, asks another object than `context.stopping_criteria` whether parts follow, or
    the connection is not `cl_socket` of the context.
    """
    from ts.protocol import otf_message_handler  # noqa: PLC0415 - imports torch

    count = len(context.request_processor)
    bodies: dict[int, bytes] = {}
    ends: dict[int, Callable[[bytes], bool | None]] = {}
    for row, body, follows in parts:
        # An index has one place in a message, so the second part of a row has its negative index.
        index = row - count if row in bodies else row
        bodies[index] = body
        ends[index] = partial(_ends, follows)
    ids: Mapping[int, Any] = {index: context.request_ids[index % count] for index in bodies}
    context.stopping_criteria = ends
    try:
        message = otf_message_handler.create_predict_response(
            bodies, ids, "Prediction success", 200, context
        )
    finally:
        context.stopping_criteria = None
    context.cl_socket.sendall(message)


def _ends(follows: bool | None, _body: bytes) -> bool | None:
    return None if follows is None else not follows


# Processes

WORKER_SCRIPT = "model_service_worker.py"
FRONTEND = "org.pytorch.serve.ModelServer"


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process is a worker, and no torchrun that starts one.

    Breaks when TorchServe starts its workers with another script.
    """
    try:
        arguments = process.cmdline()[1:]
    except psutil.Error:  # It has ended.
        return False
    script = next((each for each in arguments if not each.startswith("-")), "")
    return Path(script).name == WORKER_SCRIPT


def worker_memory(pid: int) -> int:
    """Return the memory of a worker of this machine, with its part of what it shares (PSS).

    It is 0 for another process.

    Breaks when TorchServe starts its workers with another script.
    """
    try:
        process = psutil.Process(pid)
        if not is_worker(process):
            return 0
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.Error:  # It has ended, or TorchServe runs on another machine.
        return 0


def count_workers() -> int:
    """Return how many worker processes the model of this one has.

    Breaks when TorchServe starts workers in another folder than the folder of their model.

    Raises:
        OSError: the folder of the model was removed.
    """
    return sum(1 for _ in _workers())


def has_older_worker(process: psutil.Process) -> bool:
    """Return whether the parent of a worker of this model has started another one before it.

    Breaks when TorchServe starts workers in another folder than the model's, or without a
    PYTHONPATH that tells two names of one folder apart.

    Raises:
        OSError: the folder of the model was removed.
    """
    return any(_is_older(worker, process) for worker in _workers())


def read_config_properties() -> str | None:
    """Return the config.properties of the TorchServe that started this process; None elsewhere.

    TorchServe passes it to no worker, so it is read from the file that TS_CONFIG_FILE names, which
    the worker inherits, or else TorchServe's command.

    Breaks when TorchServe's main class or the option of its command has another name.
    """
    try:
        for process in psutil.Process().parents():
            if FRONTEND in (command := process.cmdline()):
                path = Path(process.cwd(), _config_file(command))
                return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, psutil.Error):
        pass
    return None


def _config_file(command: Sequence[str]) -> str:
    """Return the name of the file in TorchServe's order: the variable, the command, the default."""
    named = (value for name, value in pairwise(command) if name == "-f")
    return os.environ.get("TS_CONFIG_FILE") or next(named, "config.properties")


def _workers() -> Iterator[psutil.Process]:
    folder = str(Path.cwd())
    return (process for process in psutil.process_iter() if _is_worker_in(folder, process))


def _is_worker_in(folder: str, process: psutil.Process) -> bool:
    try:
        return process.cwd() == folder and is_worker(process)
    except psutil.Error:
        return False


def _is_older(worker: psutil.Process, process: psutil.Process) -> bool:
    try:
        started, own = (each.create_time() for each in (worker, process))
        is_sibling = worker.ppid() == process.ppid() and _path(worker) == _path(process)
    except psutil.Error:  # It has ended.
        return False
    return is_sibling and (started, worker.pid) < (own, process.pid)


def _path(worker: psutil.Process) -> str | None:
    """Return the module path that TorchServe gives a worker.

    It has the link to the model's folder, which a folder that is registered under two names has
    twice.
    """
    return worker.environ().get("PYTHONPATH")


# Lines that the worker logs for each batch

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
    getLogger().addFilter(lambda record: str(record.msg) != RECEIPT)


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


def log_prediction_time_less_often() -> None:
    """Have the worker report its gauge of the time of a batch once per interval.

    Breaks when the gauge is reported by another logger, or in another form.
    """
    getLogger("ts.metrics.caching_metric").addFilter(_once_per_interval)


# Logs of the server, which tells only there of its workers and archives

LOAD_TIMEOUT = "Backend worker did not respond in given time"
START_TIMEOUT = "Backend worker startup time out."

_THREAD = r"W-\d+-(?P<model>.+)_[^_ ]+"
_OUTPUT = re.compile(rf"(?P<thread>{_THREAD}-std(?:out|err)) MODEL_LOG - (?P<text>.*)")
_EXIT = re.compile(rf"{_THREAD} org\.pytorch\.serve\.\S+ - Retry worker")
_ERROR = re.compile(
    rf"{_THREAD} org\.pytorch\.serve\.\S+ - Backend worker error\n[\w.$]+: (?P<reason>.*)"
)
_PID = re.compile(rf"{_THREAD}-stdout MODEL_LOG - \[PID\](?P<pid>\d+)$", re.M)
_ARCHIVE = re.compile(
    r"Failed to load model: (?P<file>.+)\n[\w.$]*?(?P<reason>\w+(?:: .*)?)$", re.M
)
_CONSOLE = re.compile(r"^(?:Invalid|Unrecognized|Error|.*Exception).*", re.M)
# Errors that TorchServe raises after the actual one: it looks for a built-in handler when an import
# fails, and raises another error after a RuntimeError of the model.
_FOLLOW_UP = re.compile(r"RuntimeError: 50\d - |.*No module named 'ts\.torch_handler\.")


def worker_output(log: str) -> Mapping[str, Sequence[str]]:
    """Return the lines that the workers of each model have written.

    Breaks when TorchServe names the thread of a worker, or `MODEL_LOG`, in another way.
    """
    output = defaultdict[str, list[str]](list)
    for line in _OUTPUT.finditer(log):
        output[line["model"]].append(line["text"])
    return output


def output_line(line: str) -> tuple[str, str] | None:
    """Return the thread that copies what a worker writes, and the text; None for other lines.

    Breaks when TorchServe names the thread of a worker, or `MODEL_LOG`, in another way.
    """
    found = _OUTPUT.search(line)
    return (found["thread"], found["text"]) if found else None


def models_with_exited_workers(log: str) -> set[str]:
    """Return the models whose worker TorchServe starts again.

    Breaks when TorchServe does not log `Retry worker`.
    """
    return {match["model"] for match in _EXIT.finditer(log)}


def worker_errors(log: str) -> Mapping[str, str]:
    """Return why TorchServe has ended the last worker of models, such as its timeout.

    Breaks when TorchServe does not log `Backend worker error`, or its timeouts have other texts.
    """
    return {match["model"]: match["reason"] for match in _ERROR.finditer(log)}


def worker_pids(log: str) -> Iterator[tuple[str, str]]:
    """Yield the model and the process id of each worker that was started.

    Breaks when a worker does not write `[PID]`.
    """
    return ((match["model"], match["pid"]) for match in _PID.finditer(log))


def archive_errors(log: str) -> Mapping[str, str]:
    """Return why archives were not read, by the names of their files.

    Breaks when TorchServe does not log `Failed to load model`.
    """
    return {match["file"]: match["reason"] for match in _ARCHIVE.finditer(log)}


def console_error(log: str) -> str | None:
    """Return the first error that Java has written before TorchServe ran; None without one.

    Breaks when Java's messages begin with other words.
    """
    found = _CONSOLE.search(log)
    return found[0] if found else None


def is_follow_up(error: str) -> bool:
    """Return whether an error of a worker is one that another error has caused in TorchServe.

    Breaks when TorchServe looks for built-in handlers in another module, or numbers errors
    otherwise.
    """
    return _FOLLOW_UP.match(error) is not None
