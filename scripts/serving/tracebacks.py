"""Extract the error message from Python tracebacks in a log."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile

TRACEBACK = "Traceback (most recent call last):"
END = re.compile(r"$|During handling of|The above exception|Backend worker process died")
KIT_ERROR = re.compile(r"^handlers\.[\w.]+: ")
# Errors that TorchServe raises after the actual one: it looks for a built-in handler when an import
# fails, and raises another error after a RuntimeError of the model.
FOLLOW_UP = re.compile(r"RuntimeError: 50\d - |.*No module named 'ts\.torch_handler\.")


def last_error(log: str) -> str | None:
    """Return the last exception in a log as one line, or None if there is no complete traceback.

    The class name is removed from errors of this kit and kept for others, as in `KeyError: 'x'`.
    """
    blocks = log.split(TRACEBACK)[1:]
    errors = [error for error in map(_exception, blocks) if error and not FOLLOW_UP.match(error)]
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
