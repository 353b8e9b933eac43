"""`serve.py logs`: the lines of a server's log, of all models or of one."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hf_serve.hosts.defaults import LOG_FORMAT
from hf_serve.scripts import serve
from hf_serve.scripts.serving.logs import (
    SERVER_LOG,
    asgi_filter,
    following_lines,
    last_lines,
    log_filter,
)
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


def _output(*texts: str, thread: str = "W-9000-sentiment_1.0-stdout") -> list[str]:
    return [f"t [INFO ] {thread} MODEL_LOG - {text}" for text in texts]


TRACEBACK = "Traceback (most recent call last):"
ERROR = "handlers.errors.WrongConfig: handler.custom: is own.py, which fails in line 2; correct it."


def test_the_exception_of_a_traceback_is_a_problem() -> None:
    """A worker that does not load writes why as lines of the level INFO."""
    frames = ['  File "a.py", line 1, in b', "    c()", ""]
    other = _output("Loaded", thread="W-9001-other_1.0-stdout")
    log = [*_output(TRACEBACK, *frames), *other, *_output(ERROR, "Loaded")]
    is_shown = log_filter(None, problems=True)
    assert list(filter(is_shown, log)) == _output(ERROR)


def test_the_exception_of_a_traceback_in_json_is_a_problem() -> None:
    keys = {"time": "t", "level": "INFO", "thread": "W-9-m_1.0-stdout", "logger": "MODEL_LOG"}
    log = [json.dumps({**keys, "message": text}) for text in (TRACEBACK, "  c()", "KeyError: 1")]
    assert list(filter(log_filter("m", problems=True), log)) == log[-1:]


def test_what_torchserve_raises_after_an_error_is_no_problem() -> None:
    follow_up = "ModuleNotFoundError: No module named 'ts.torch_handler.transformers_handler'"
    log = _output(TRACEBACK, ERROR, "", "During handling of …", "", TRACEBACK, follow_up)
    assert list(filter(log_filter(None, problems=True), log)) == _output(ERROR)


ASGI_LINES = [
    "INFO hf_serve.hosts.asgi.in_process store/film.mar is served as film, version 1.0",
    "ERROR hf_serve.hosts.asgi.in_process store/film-de.mar did not load: It is no .mar.",
    "film: 2026-11-27 10:00:00,003 WARNING handlers.engine slow",
    TRACEBACK,
    '  File "a.py", line 1, in b',
    "handlers.errors.WrongConfig: film has no labels",
    "INFO uvicorn.error Started",
]


@pytest.mark.parametrize(
    ("model", "problems", "shown"),
    [
        (None, False, [0, 1, 2, 3, 4, 5, 6]),
        (None, True, [1, 2, 5]),
        ("film", False, [0, 2, 5]),
        ("film", True, [2, 5]),
        ("film-de", True, [1]),
    ],
)
def test_the_log_of_a_server_without_torchserve_is_filtered(
    model: str | None, problems: bool, shown: list[int]
) -> None:
    is_shown = asgi_filter(model, problems=problems)
    assert list(filter(is_shown, ASGI_LINES)) == [ASGI_LINES[at] for at in shown]


def test_lines_of_a_server_without_torchserve_have_a_time() -> None:
    record = logging.makeLogRecord({"levelname": "ERROR", "name": "a", "msg": "full"})
    line = logging.Formatter(LOG_FORMAT).format(record)
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ERROR a full$", line)
    assert asgi_filter(None, problems=True)(line)


@pytest.mark.parametrize("head", ["", LINES[1], '{"time": "', "Traceback "])
def test_a_line_of_megabytes_is_one_line(tmp_path: Path, head: str) -> None:
    """A worker prints a tensor, or a log is cut in a JSON object."""
    path = tmp_path / SERVER_LOG
    path.write_text("\n".join([head + "[x]: " * 200_000, *LINES]), encoding="utf-8")
    found, _position = last_lines(path, 50, log_filter("sentiment", problems=True))
    assert found == [LINES[at] for at in (2, 4, 5, 6)]


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
