"""`serve.py logs`: the lines of a server's log, of all models or of one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hf_serve.scripts import serve
from hf_serve.scripts.serving.logs import SERVER_LOG, following_lines, last_lines, log_filter
from hf_serve.scripts.serving.ports import Ports
from hf_serve.scripts.serving.server import Server
from tests.sentences import Sentence

LINES = [
    "2026-11-27T10:00:00,001 [INFO ] main org.pytorch.serve.ModelServer - Started",
    "2026-11-27T10:00:00,002 [INFO ] W-9000-sentiment_1.0-stdout MODEL_LOG - Loaded",
    "2026-11-27T10:00:00,003 [WARN ] W-9000-sentiment_1.0-stdout MODEL_LOG - Slow",
    "2026-11-27T10:00:00,004 [INFO ] W-9001-sentiment_de_1.0-stdout MODEL_LOG - Loaded",
    '{"time": "t", "level": "ERROR", "thread": "W-9000-sentiment_1.0-stderr", "message": "No"}',
    "t [INFO ] W-9000-sentiment_1.0-stdout MODEL_LOG - Request failed: request_id=7 status=500",
    "t [INFO ] W-9000-sentiment_1.0-stdout MODEL_LOG - KeyError in the handler, at a.py:1 b",
]


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / SERVER_LOG).write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6]),
        ({"lines": 2}, [5, 6]),
        ({"lines": 0}, []),
        ({"model": "sentiment"}, [1, 2, 4, 5, 6]),
        ({"model": "sentiment", "lines": 1}, [6]),
        ({"model": "sentiment_de"}, [3]),
        ({"model": "sent.*"}, []),
        ({"problems": True}, [2, 4, 5, 6]),
    ],
)
def test_the_last_lines_are_shown(
    workdir: Path, capsys: Any, options: dict[str, Any], shown: list[int]
) -> None:
    defaults = {"model": None, "lines": 50, "follow": False, "problems": False}
    serve.logs(**{**defaults, **options}, workdir=workdir)
    assert capsys.readouterr().out.splitlines() == [LINES[at] for at in shown]


def test_a_log_without_such_lines_is_said(workdir: Path, capsys: Any) -> None:
    serve.logs("other", lines=50, follow=False, problems=True, workdir=workdir)
    printed = capsys.readouterr()
    assert (printed.out, printed.err.strip()) == ("", Sentence(SERVER_LOG))
    serve.logs("other", lines=0, follow=False, problems=False, workdir=workdir)
    assert not capsys.readouterr().err


def test_a_model_that_the_server_does_not_have_is_named(workdir: Path, capsys: Any) -> None:
    Server(1, 0.0, {"sentiment": "sentiment.mar"}, Ports(), workdir, workdir).save()
    serve.logs("other", lines=50, follow=False, problems=False, workdir=workdir)
    assert capsys.readouterr().err.strip() == Sentence(SERVER_LOG, "other", "sentiment")


def test_a_folder_without_logs_is_said(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(typer.Exit) as caught:
        serve.logs(workdir=tmp_path / "nowhere")
    assert caught.value.exit_code == 1
    assert capsys.readouterr().out.strip() == Sentence("--workdir")


def test_new_lines_are_followed_into_a_new_file(workdir: Path) -> None:
    path = workdir / "logs" / SERVER_LOG
    is_shown = log_filter(None, problems=False)
    found: Iterator[str] = following_lines(path, last_lines(path, 0, is_shown)[1], is_shown)

    def write() -> None:
        with path.open("a", encoding="utf-8") as log:
            log.write("one\ntw")
            log.flush()
            log.write("o\n")

    threading.Timer(0.1, write).start()
    assert [next(found), next(found)] == ["one", "two"]
    path.write_text("three\n", encoding="utf-8")
    assert next(found) == "three"
