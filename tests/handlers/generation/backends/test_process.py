"""The process of an engine, with programs that stand in for one."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from hf_serve.handlers.errors import EngineFailed, Overloaded, RequestError, WrongCheckpoint
from hf_serve.handlers.generation.backends.process import (
    BackendModel,
    BackendProcess,
    BackendProgram,
    SequenceStart,
    has_running,
)
from hf_serve.handlers.process.threads import LazyLoad
from tests.sentences import refused
from tests.serving import Served
from tests.waiting import wait_for

READY = """
import signal, socket, sys, time
channel = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
channel.sendall(b'{"ready": true}\\n')
"""
# Answers pings until it has a text.
HANGING = """
for line in channel.makefile("rb"):
    if b"ping" not in line:
        break
    channel.sendall(b'{"pong": true}\\n')
"""
DEAF = "while True:\n    time.sleep(60)\n"
# Ends with the connection, and starts a process that does not.
LEAVING = "import os\nif os.fork() == 0:\n    time.sleep(600)\nchannel.recv(9)\n"
# Starts a process without the connection, which SIGTERM does not end.
ORPHANING = """
import os
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.close()
    time.sleep(600)
channel.recv(9)
"""
FAILING = 'channel.recv(9)\nchannel.sendall(b\'{"failed": "RuntimeError: a secret"}\\n\')\n'


def start(folder: Path, source: str, hang_seconds: float = math.inf) -> BackendProcess:
    script = folder / "program.py"
    script.write_text(source, encoding="utf-8")
    program = BackendProgram("stand-in", script, "nothing", "correct it")
    end_seconds = 0.2 if source.endswith(DEAF) else 60
    return BackendProcess(program, {}, end_seconds=end_seconds, hang_seconds=hang_seconds)


def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, READY + DEAF)
    process.close()
    assert process._process.returncode == -signal.SIGKILL


def started_by(process: BackendProcess) -> list[psutil.Process]:
    """Return what a process has started, once there is something."""
    children: list[psutil.Process] = []

    def has_child() -> bool:
        children.extend(psutil.Process(process._process.pid).children())
        return bool(children)

    wait_for(has_child)
    return children


def test_what_a_process_has_started_is_killed_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_serve.handlers.generation.backends.process.CHILDREN_SECONDS", 0.1)
    process = start(tmp_path, READY + LEAVING)
    children = started_by(process)
    process.close()
    assert process._process.returncode == 0
    assert not psutil.wait_procs(children, timeout=5)[1]


def test_what_a_killed_process_has_started_is_killed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_serve.handlers.generation.backends.process.CHILDREN_SECONDS", 600)
    process = start(tmp_path, READY + ORPHANING)
    children = started_by(process)
    os.kill(process._process.pid, signal.SIGKILL)
    assert not psutil.wait_procs(children, timeout=30)[1]


def test_processes_that_have_ended_are_not_waited_for() -> None:
    first = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, process_group=0)
    assert has_running(first.pid)
    first.kill()
    # It has ended, and nobody has asked for its status.
    wait_for(lambda: psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE)
    assert not has_running(first.pid)
    assert not psutil.pid_exists(first.pid)
    first.wait()


def test_a_process_without_a_sign_of_life_is_killed_and_its_texts_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process, events = start(tmp_path, READY + HANGING + DEAF, hang_seconds=0.5), list[object]()
    # It lives for as long as it answers.
    assert not process._ended.wait(1.5)
    process.start(SequenceStart(1, [5], {}, in_parts=False), 4, events.append)
    for thread in process._threads:
        thread.join(60)
    assert events == [{"error": None}]
    assert process.has_failed and process._process.returncode == -signal.SIGKILL
    assert "no sign of life for 0.5 s" in caplog.text
    with pytest.raises(EngineFailed):
        process.start(SequenceStart(2, [5], {}, in_parts=False), 4, events.append)


def test_a_process_that_is_stopped_is_killed_while_it_has_nothing_to_do(tmp_path: Path) -> None:
    process = start(tmp_path, READY + HANGING + DEAF, hang_seconds=0.5)
    process._process.send_signal(signal.SIGSTOP)
    for thread in process._threads:
        thread.join(60)
    assert process.has_failed and process._process.returncode == -signal.SIGKILL


class CancelledMeanwhile(dict[int, Any]):
    """Texts of which one is cancelled by another thread while its event is passed on."""

    def __init__(self, process: BackendProcess) -> None:
        super().__init__()
        self.process, self.cancelling = process, list[threading.Thread]()

    def get(self, number: int, default: Any = None) -> Any:
        found = super().get(number, default)
        thread = threading.Thread(target=self.process.cancel, args=(number,))
        self.cancelling.append(thread)
        thread.start()
        # It has to wait where the text is passed on as a whole.
        thread.join(0.1)
        return found


def test_a_text_that_is_cancelled_while_it_is_passed_on_is_forgotten(tmp_path: Path) -> None:
    process = start(tmp_path, READY + DEAF)
    process._receivers = texts = CancelledMeanwhile(process)
    process.start(SequenceStart(1, [5], {}, in_parts=True), 4, lambda _: None)
    process._pass_on({"id": 1, "finished": False})
    for thread in texts.cancelling:
        thread.join(60)
    assert not process._running
    assert process.load_metrics["running_texts"] == process.load_metrics["waiting_texts"] == 0
    process.close()


def test_an_error_of_a_step_fails_the_texts_and_later_ones_and_quotes_no_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process, events = start(tmp_path, READY + FAILING), list[object]()
    process.start(SequenceStart(1, [5], {}, in_parts=False), 4, events.append)
    for thread in process._threads:
        thread.join(60)
    assert events == [{"error": None}]
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text
    with pytest.raises(EngineFailed):
        process.start(SequenceStart(2, [5], {}, in_parts=False), 4, events.append)


def test_a_setting_that_cannot_be_sent_is_the_error_of_its_text(tmp_path: Path) -> None:
    process, events = start(tmp_path, READY + FAILING), list[object]()
    with pytest.raises(TypeError):
        process.start(SequenceStart(1, [5], {"set": {5}}, in_parts=False), 4, events.append)
    assert process.sequences == 0
    process.start(SequenceStart(2, [5], {}, in_parts=False), 4, events.append)
    for thread in process._threads:
        thread.join(60)
    assert events == [{"error": None}]


class StandIn(BackendModel):
    def _settings(self, prompt: Any, number: int) -> dict[str, Any]:
        return {}

    def _constraints(self, grammar: Any) -> dict[str, Any]:
        return {}

    def _failure(self, reason: str) -> RequestError:
        return EngineFailed()


def test_rows_that_are_explained_share_forwards_as_their_model_can(
    tmp_path: Path, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = "text_generation"
    static = Served(checkpoint(mode), mode).engine.model
    monkeypatch.setattr(static, "padded_limit", 7.0)
    monkeypatch.setattr(static, "runs_alone", True)
    process = start(tmp_path, READY + DEAF)
    model = StandIn(process, 4, LazyLoad(lambda: static), has_gradients=True)
    assert model.run_exclusively(lambda: (model.padded_limit, model.runs_alone)) == (7.0, True)
    process.close()


def test_all_texts_of_a_prompt_must_have_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, limits = start(tmp_path, READY + DEAF), list[int]()
    start_text = process.start

    def recorded(text: SequenceStart, limit: int, receive: Any) -> None:
        limits.append(limit)
        start_text(text, limit, receive)

    monkeypatch.setattr(process, "start", recorded)
    model: Any = StandIn(process, 3, LazyLoad(pytest.fail), has_gradients=False)

    def generate(texts: int, number: int = 0) -> None:
        facts = {"backend_sequences": texts, "grammar": None, "is_incremental": False}
        model.start(SimpleNamespace(features={"input_ids": [5]}, **facts), number, lambda _: None)

    generate(2)
    generate(2, number=1)
    with pytest.raises(Overloaded):
        generate(2)
    generate(1)
    with pytest.raises(Overloaded):
        generate(1)
    assert process.sequences == 3
    # Each leaves room for those of its prompt that are still to come.
    assert limits == [2, 3, 3]
    process.close()


def test_a_process_that_ends_before_it_is_ready_stops_the_load(tmp_path: Path) -> None:
    with refused(WrongCheckpoint):
        start(tmp_path, "")
