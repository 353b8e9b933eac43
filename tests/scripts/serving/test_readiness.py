from __future__ import annotations

import os
from pathlib import Path
from threading import Timer

import pytest

from hf_serve.scripts.serving.ports import Ports, free_ports
from hf_serve.scripts.serving.processes import started_at
from hf_serve.scripts.serving.readiness import (
    ModelsFailed,
    failures,
    start_seconds,
    wait_until_ready,
)
from hf_serve.scripts.serving.server import Server

MODELS = {"qa": "qa.mar", "qa_large": "qa_large.mar"}
LOADING = "10:00 [INFO ] W-9001-qa_large_1.0-stdout MODEL_LOG - "
WORKER_EXITED = (
    "10:01 [INFO ] W-9001-qa_large_1.0 org.pytorch.serve.wlm.WorkerThread - Retry worker: 9001"
)
ARCHIVE_ERROR = """10:00 [WARN ] main org.pytorch.serve.ModelServer - Failed to load model: qa.mar
java.util.zip.ZipException: unexpected EOF
\tat java.util.zip.ZipInputStream.read(Unknown Source) ~[?:?]
"""


def reasons(folder: Path, log: str) -> dict[str, str]:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "ts_log.log").write_text(log)
    return failures(Server(1, 0.0, MODELS, Ports(), folder, folder), list(MODELS))


def worker_output(*lines: str) -> str:
    return "".join(f"{LOADING}{line}\n" for line in lines)


ERROR = worker_output("Traceback (most recent call last):", "  File ...", "KeyError: 'x'")


@pytest.mark.parametrize("log", ["", worker_output("Torch worker started."), ERROR])
def test_a_running_worker_has_not_failed(log: str, tmp_path: Path) -> None:
    assert reasons(tmp_path, log) == {}


def test_an_exited_worker_has_failed_with_its_last_error(tmp_path: Path) -> None:
    assert reasons(tmp_path, ERROR + WORKER_EXITED) == {"qa_large": "KeyError: 'x'"}


def test_a_killed_worker_is_reported_without_an_error(tmp_path: Path) -> None:
    assert (
        "out of memory"
        in reasons(tmp_path, worker_output("Torch worker started.") + WORKER_EXITED)["qa_large"]
    )


def test_an_archive_that_java_cannot_read_is_reported(tmp_path: Path) -> None:
    assert reasons(tmp_path, ARCHIVE_ERROR) == {"qa": "ZipException: unexpected EOF"}


def test_a_traceback_that_is_logged_late_is_reported(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "ts_log.log"
    log.write_text(f"{WORKER_EXITED}\n")
    alive = os.getpid(), started_at(os.getpid()) or 0.0
    late = Timer(1.0, lambda: log.write_text(f"{WORKER_EXITED}\n{ERROR}"))

    late.start()
    with pytest.raises(ModelsFailed, match="qa_large did not load: KeyError: 'x'"):
        wait_until_ready(Server(*alive, MODELS, free_ports(), tmp_path, tmp_path), timeout=30)
    late.join()


TIME_LIMIT = """[ERROR] W-9-qa_large_1.0 org.pytorch.serve.wlm.WorkerThread - Backend worker error
org.pytorch.serve.wlm.WorkerInitializationException: {reason}
\tat org.pytorch.serve.wlm.WorkerThread.run(WorkerThread.java:247) [model-server.jar:?]
"""


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("Backend worker did not respond in given time", "startupTimeout of its YAML"),
        ("Backend worker startup time out.", "two minutes"),
        ("Backend stream closed.", "Backend stream closed."),
    ],
)
def test_a_time_limit_of_torchserve_is_reported(reason: str, told: str, tmp_path: Path) -> None:
    log = worker_output("Torch worker started.") + TIME_LIMIT.format(reason=reason) + WORKER_EXITED

    assert told in reasons(tmp_path, log)["qa_large"]


@pytest.mark.parametrize(
    "end", ["was ended by SIGKILL", "was ended by SIGKILL, as the system was out of memory"]
)
def test_the_end_of_the_last_worker_is_reported(end: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "fork_server.log").write_text(
        f"Worker 16 exited with code 3\nWorker 17 {end}\nWorker 18 was ended by SIGTERM\n"
    )

    log = worker_output("[PID]16", "[PID]17") + WORKER_EXITED
    assert reasons(tmp_path, log) == {"qa_large": f"its worker {end}"}


def test_more_models_on_fewer_cores_may_take_longer() -> None:
    assert start_seconds(1, cores=2) == start_seconds(2, cores=2)
    assert start_seconds(5, cores=2) - start_seconds(2, cores=2) == 240
