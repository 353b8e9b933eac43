from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
import typer

from hf_serve.handlers.errors import KitError
from hf_serve.hosts.fork_server.start import VARIABLE
from hf_serve.scripts import serve
from hf_serve.scripts.serving.background import OneUrl
from hf_serve.scripts.serving.ports import free_ports, is_free
from hf_serve.scripts.serving.processes import group_members, started_at
from hf_serve.scripts.serving.properties import read_properties
from hf_serve.scripts.serving.server import Server
from tests.sentences import Sentence, refused
from tests.standins.archives import ECHO, write_archive

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "serve.py"


class Line:
    """The command line in a new folder, where `store/` has one model."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workdir, self.ports = folder, folder / "server", free_ports()
        # The archive imports no packages.
        self.environment = {**os.environ, VARIABLE: "off"}
        (folder / "store").mkdir()
        write_archive(folder / "store", "echo", ECHO)

    def command(self, verb: str, *more: str) -> list[str]:
        arguments = [verb, "--workdir", "server", *more]
        if verb == "start":
            arguments += ["--model-store", "store", *self._ports()]
        return [sys.executable, str(SCRIPT), *arguments]

    def run(self, verb: str, *more: str) -> tuple[int, str, str]:
        ended = subprocess.run(
            self.command(verb, *more),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        return ended.returncode, ended.stdout, ended.stderr

    def _ports(self) -> list[str]:
        renamed = {"inference_port": "port", "grpc_inference_port": "grpc_port"}
        names = {f"{name}_port": port for name, port in asdict(self.ports).items()}
        pairs = ((renamed.get(name, name).replace("_", "-"), port) for name, port in names.items())
        return [word for name, port in pairs for word in (f"--{name}", str(port))]


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path)
    yield made
    if left := Server.of(made.workdir):
        left.stop()


@pytest.mark.server
def test_start_status_stop(line: Line) -> None:
    url_port = free_ports().inference
    code, out, _ = line.run("start", "--url-port", str(url_port))
    assert code == 0
    url = f"http://127.0.0.1:{url_port}"
    assert f"One URL for all models: {url}" in out
    (model,) = httpx.get(f"{url}/v1/models", timeout=60).json()["data"]
    assert (model["id"], model["state"]) == ("echo", "ready")
    assert "echo is ready" in out
    assert f"TorchServe itself: http://127.0.0.1:{line.ports.inference}" in out
    assert httpx.get(f"http://127.0.0.1:{line.ports.inference}/ping", timeout=60).is_success

    code, out, _ = line.run("start")
    assert code == 0
    assert "running already" in out

    code, out, _ = line.run("status")
    assert (code, out.splitlines()[0]) == (0, "echo is ready")
    assert f"{url} answers" in out

    server = Server.of(line.workdir)
    assert server
    assert line.run("stop")[:2] == (0, "TorchServe has stopped.\n")
    assert not group_members(server.pid)
    assert is_free(url_port)
    assert line.run("status")[:2] == (1, "TorchServe is not running.\n")


@pytest.mark.server
def test_no_url_stays_where_no_model_is_ready_in_time(line: Line) -> None:
    url_port = free_ports().inference
    code, _, err = line.run("start", "--url-port", str(url_port), "--timeout", "0.1")
    assert code == 1
    assert "0.1 s" in err
    assert is_free(url_port)
    assert Server.of(line.workdir) is None
    assert OneUrl.of(line.workdir) is None


def test_a_model_without_an_archive_is_named(line: Line) -> None:
    code, _, err = line.run("start", "--models", "nobody")

    assert (code, err) == (
        1,
        f"store has no archive of nobody; pack them with `python {SCRIPT.parent}/create_archive.py`"
        ".\n",
    )


@pytest.mark.nightly  # tests/scripts/serving/test_torchserve.py has more of them, in process
def test_a_broken_archive_is_named_and_the_others_are_served(line: Line) -> None:
    (line.folder / "store" / "broken.mar").write_text("no archive")
    code, out, err = line.run("start")
    assert (code, "echo is ready" in out) == (0, True)
    assert err.startswith("broken did not load: ")
    code, out, _ = line.run("status")
    first, second, *_ = out.splitlines()
    assert (code, first) == (1, "echo is ready")
    assert second.startswith("broken is not served: ")


def test_a_model_that_does_not_answer_has_the_reason_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = "[INFO ] W-9000-broken_1.0"
    lines = ["Traceback (most recent call last):", "handlers.errors.WrongConfig: [mode] is wrong."]
    log = [f"{thread}-stdout MODEL_LOG - {line}" for line in lines]
    log.append(f"{thread} org.pytorch.serve.wlm.WorkerThread - Retry worker: 9000")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "ts_log.log").write_text("\n".join(log))
    models = {name: f"{name}.mar" for name in ("good", "broken", "loading")}
    started = started_at(os.getpid()) or 0.0
    Server(os.getpid(), started, models, free_ports(), tmp_path, tmp_path).save()
    monkeypatch.setattr(Server, "is_ready", lambda _, name: name == "good")
    with pytest.raises(typer.Exit) as ended:
        serve.status(tmp_path)
    good, broken, loading, *_ = capsys.readouterr().out.splitlines()
    assert (good, loading, ended.value.exit_code) == (
        "good is ready",
        "loading does not answer",
        1,
    )
    assert broken == Sentence("broken", "[mode] is wrong", "logs broken")


@pytest.mark.server
def test_in_the_foreground_a_signal_stops_all_of_it(line: Line) -> None:
    command = line.command("start", "--foreground")
    process = subprocess.Popen(
        command, cwd=line.folder, env=line.environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    log = ""
    while "Ask at" not in log and (printed := process.stdout.readline()):
        log += printed
    server = Server.of(line.workdir)
    assert server

    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=240)

    assert "org.pytorch.serve" in log
    assert not group_members(server.pid)


def test_tokens_that_one_url_has_not_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.properties"
    config.write_text("enable_model_api=true\n")
    monkeypatch.setattr(serve, "CONFIG", config)
    with pytest.raises(SystemExit):
        serve.start(workdir=tmp_path / "server", url_port=free_ports().inference)
    with refused(KitError, "config.properties", "disable_token_authorization", "--api-key-file"):
        serve._require_no_tokens(read_properties(config))


def test_stopping_what_does_not_run_is_no_error(line: Line) -> None:
    assert line.run("stop") == (0, "TorchServe was not running.\n", "")
