"""Extract the error message from Python tracebacks in a log."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile

from hf_serve.handlers.compat.torchserve import is_follow_up

TRACEBACK = "Traceback (most recent call last):"
END = re.compile(r"$|During handling of|The above exception|Backend worker process died")
KIT_ERROR = re.compile(r"^handlers\.[\w.]+: ")


def last_error(log: str) -> str | None:
    """Return the last exception in a log as one line, or None if there is no complete traceback.

    The class name is removed from errors of this kit and kept for others, as in `KeyError: 'x'`.
    """
    blocks = log.split(TRACEBACK)[1:]
    errors = [error for error in map(_exception, blocks) if error and not is_follow_up(error)]
    return KIT_ERROR.sub("", errors[-1]) if errors else None


def last_line(text: str) -> str:
    """Return the last line of the text of an exception that has a traceback of another process.

    The class name is removed from errors of this kit.
    """
    lines = text.strip().splitlines() or ["no reason was given"]
    return KIT_ERROR.sub("", lines[-1].strip())


def _exception(block: str) -> str:
    after_frames = dropwhile(lambda line: not line.strip() or line[0] == " ", block.splitlines())
    lines = takewhile(lambda line: not END.match(line), after_frames)
    return " ".join(" ".join(lines).split())
