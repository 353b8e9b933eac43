"""The work folder that a command means without `--workdir`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from hf_serve.scripts.serving import workdirs
from hf_serve.scripts.serving.background import ASGI_LOG, record_asgi_server
from hf_serve.scripts.serving.logs import SERVER_LOG
from hf_serve.scripts.serving.ports import Ports
from hf_serve.scripts.serving.processes import started_at
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.workdirs import (
    STORE,
    SeveralServers,
    find_workdir,
    log_of,
    workdir_option,
)
from tests.sentences import refused


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(workdirs, "STARTED", tmp_path / "build" / "server")
    return workdirs.STARTED


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(workdirs, "RUN", tmp_path / "hf-serve" / "server")
    return workdirs.RUN


def save(workdir: Path, *, alive: bool) -> None:
    """Write the state of a server, which is this process or one that has ended."""
    workdir.mkdir(parents=True, exist_ok=True)
    pid, at = os.getpid(), started_at(os.getpid()) or 0.0
    Server(pid, at if alive else 1.0, {}, Ports(), workdir, workdir).save()


def log(workdir: Path, at: float) -> None:
    path = workdir / "logs" / SERVER_LOG
    path.parent.mkdir(parents=True)
    path.touch()
    os.utime(path, (at, at))


def test_a_folder_that_is_named_is_taken(started: Path, ran: Path, tmp_path: Path) -> None:
    save(ran, alive=True)
    assert find_workdir(tmp_path) == tmp_path
    save(tmp_path / "two" / "server", alive=True)
    assert find_workdir(tmp_path / "two") == tmp_path / "two" / "server"


@pytest.mark.parametrize("alive", ["started", "ran"])
def test_the_server_that_runs_is_found(started: Path, ran: Path, alive: str) -> None:
    save(started, alive=alive == "started")
    save(ran, alive=alive == "ran")
    assert find_workdir(None) == {"started": started, "ran": ran}[alive]


def test_of_two_servers_one_has_to_be_named(started: Path, ran: Path) -> None:
    save(started, alive=True)
    save(ran, alive=True)
    with refused(SeveralServers, str(started), str(ran), "--workdir"):
        find_workdir(None)


def test_without_a_server_the_newest_log_counts(started: Path, ran: Path) -> None:
    assert find_workdir(None) == started
    (ran.parent / STORE).mkdir(parents=True)
    assert find_workdir(None) == ran
    log(started, 1)
    log(ran, 2)
    assert find_workdir(None) == ran


def test_the_log_is_of_the_server_that_runs_and_not_of_one_before(ran: Path) -> None:
    log(ran, 2)
    assert log_of(ran) == ran / "logs" / SERVER_LOG
    record_asgi_server(ran, 8000, None)
    (ran / ASGI_LOG).touch()
    os.utime(ran / ASGI_LOG, (1, 1))
    assert find_workdir(None) == ran
    assert log_of(ran) == ran / ASGI_LOG


def test_without_a_server_the_log_is_the_newest(ran: Path) -> None:
    assert log_of(ran) is None
    log(ran, 1)
    (ran / ASGI_LOG).touch()
    assert log_of(ran) == ran / ASGI_LOG
    save(ran, alive=True)
    assert log_of(ran) == ran / "logs" / SERVER_LOG


@pytest.mark.parametrize("name", ["two", "with a space", "d\u00e9j\u00e0 #1 50%"])
def test_a_command_that_is_shown_finds_the_server(tmp_path: Path, name: str) -> None:
    """`run --folder two` shows commands with the option that it was given."""
    of_run, of_start = tmp_path / name / "server", tmp_path / name
    save(of_run, alive=True)
    for workdir in (of_run, of_start):
        _, shown = shlex.split(shlex.join(map(str, workdir_option(workdir))))
        assert find_workdir(Path(shown)) == of_run
