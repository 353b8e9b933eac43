"""The texts are constants of TorchServe's classes, which a new version may change."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
import ts
import ts.model_server
import ts.model_service_worker

from handlers.compat.torchserve import server_logs
from handlers.compat.torchserve.processes import FRONTEND, WORKER_SCRIPT

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
        (server_logs.LOAD_TIMEOUT, "wlm/WorkerThread"),
        ("Retry worker", "wlm/WorkerThread"),
        ("Backend worker error", "wlm/WorkerThread"),
        (server_logs.START_TIMEOUT, "wlm/WorkerLifeCycle"),
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
    assert server_logs.worker_output(LOG) == {model: ["[PID]123", "KeyError: 'x'"]}
    assert server_logs.models_with_exited_workers(LOG) == {model}
    assert server_logs.worker_errors(LOG) == {model: server_logs.START_TIMEOUT}
    assert list(server_logs.worker_pids(LOG)) == [(model, "123")]
    assert server_logs.archive_errors(LOG) == {"qa.mar": "ZipException: unexpected EOF"}


def test_a_console_has_the_first_error() -> None:
    text = "Picked up options\nError: Could not find or load main class\nException in main\n"
    assert server_logs.console_error(text) == "Error: Could not find or load main class"
    assert server_logs.console_error("Picked up options\n") is None


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
    assert server_logs.is_follow_up(error) == follows
