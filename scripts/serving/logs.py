"""The lines of a server's log, of all models or of one."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from hf_serve.handlers.compat.torchserve import is_follow_up, output_line
from hf_serve.hosts.tracebacks import TRACEBACK

# The log of the server, with what its workers print.
SERVER_LOG = "ts_log.log"
POLL_SECONDS = 0.2
# What begins an exception in the log, which has a separate line.
EXCEPTION = "  "
# Levels as log4j writes them, in brackets or as the value of a JSON object, and what a worker says
# of a failed request: TorchServe logs all lines of a worker as INFO.
PROBLEM = re.compile(
    r"""\[(WARN|ERROR|FATAL)[ ]*\] | "level":[ ]?"(WARN|ERROR|FATAL)"
    | Request[ ]failed:[ ]request_id= | \b\w+[ ]in[ ]the[ ]handler,[ ]at[ ]""",
    re.VERBOSE,
)
# The same in the log of a server without TorchServe, where a model can have its own process, whose
# lines begin with the name of the model. The log of an older version has no time.
ASGI_PROBLEM = re.compile(r"^(\S+: )?([\d-]+ [\d:,]+ )?(WARNING|ERROR|CRITICAL) ")

Filter = Callable[[str], bool]


def log_filter(model: str | None, *, problems: bool) -> Filter:
    """Return a function that says whether a line is to be shown.

    Args:
        model: the model whose workers' lines are shown; None for all lines.
        problems: whether only warnings, errors, failed requests and the exceptions of workers'
            tracebacks are shown.
    """
    exceptions = _Exceptions()
    # The name of a thread that copies what a worker prints, such as W-9000-sentiment_1.0-stdout.
    worker = re.compile(rf"\bW-\d+-{re.escape(model)}_[^\s\"_]*(?=[\s\"])") if model else None

    def is_shown(line: str) -> bool:
        if worker and not worker.search(line):
            return False
        if not problems:
            return True
        return exceptions.has(line) or PROBLEM.search(line) is not None

    return is_shown


def asgi_filter(model: str | None, *, problems: bool) -> Filter:
    """Return a function that says whether a line of the server without TorchServe is to be shown.

    Args:
        model: the model whose name the lines have; None for all lines.
        problems: whether only warnings, errors and exceptions are shown.
    """
    named = re.compile(rf"(?<![\w-]){re.escape(model)}(?![\w-])") if model else None
    in_traceback = False

    def is_problem(line: str) -> bool:
        nonlocal in_traceback
        ends_traceback = in_traceback and not line.startswith(" ")
        in_traceback = line == TRACEBACK or (in_traceback and not ends_traceback)
        return ends_traceback or ASGI_PROBLEM.search(line) is not None

    def is_shown(line: str) -> bool:
        return (not problems or is_problem(line)) and (named is None or bool(named.search(line)))

    return is_shown


class _Exceptions:
    """The lines of a log that end the tracebacks of workers, whose lines are all of level INFO."""

    def __init__(self) -> None:
        self._in_traceback = set[str]()

    def has(self, line: str) -> bool:
        """Return whether the next line of the log is one of them."""
        found = output_line(plain_line(line))
        if found is None:
            return False
        thread, text = found
        if text == TRACEBACK:
            self._in_traceback.add(thread)
            return False
        # The frames are indented.
        if thread not in self._in_traceback or not text.strip() or text.startswith(" "):
            return False
        self._in_traceback.remove(thread)
        return not is_follow_up(text)


def last_lines(path: Path, count: int, is_shown: Filter) -> tuple[list[str], int]:
    """Return the last lines of a log that are to be shown, and the size of what was read."""
    with path.open("rb") as log:
        found = deque((line for line in map(_text, log) if is_shown(line)), maxlen=count)
        return list(found), log.tell()


def following_lines(path: Path, position: int, is_shown: Filter) -> Iterator[str]:
    """Yield the lines that are written to a log from a position on; it may be replaced."""
    rest = b""
    while True:
        size = path.stat().st_size if path.exists() else 0
        if size < position:
            position, rest = 0, b""
        if size == position:
            time.sleep(POLL_SECONDS)
            continue
        with path.open("rb") as log:
            log.seek(position)
            data = rest + log.read(size - position)
        position = size
        *lines, rest = data.split(b"\n")
        yield from (line for line in map(_text, lines) if is_shown(line))


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r\n")


def plain_line(line: str) -> str:
    """Return a line of a log as TorchServe would write it, with the first line of an exception."""
    if line.startswith(EXCEPTION):
        return _first(line.removeprefix(EXCEPTION), "\\n")
    if not line.startswith('{"time"'):
        return line
    try:
        found = json.loads(line)
        head = f"{found['time']} [{found.get('level', '')}] {found.get('thread', '')}"
        message = f"{head} {found['logger']} - {found['message']}"
    except (ValueError, KeyError):
        return line
    exception = found.get("exception")
    return f"{message}\n{_first(exception, chr(10))}" if exception else message


def _first(text: str, end: str) -> str:
    return text.partition(end)[0].removesuffix("\\r").rstrip()
