"""What went wrong, as one sentence, out of a Python traceback in a log."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile

TRACEBACK = "Traceback (most recent call last):"
END = re.compile(r"$|During handling of|The above exception|Backend worker process died")
OWN_ERROR = re.compile(r"^handlers\.\w+\.\w+: ")
# What TorchServe's worker adds to the error that matters: it tries its own handlers when an import
# fails, and ends with an error of its own when the model's was a RuntimeError.
ECHO = re.compile(r"RuntimeError: 50\d - |.*No module named 'ts\.torch_handler\.")


def last_error(log: str) -> str | None:
    """Return the last exception of a log as one line, or None where no traceback is complete.

    An error of this kit is its sentence alone; any other keeps its class, as in `KeyError: 'x'`.
    """
    blocks = log.split(TRACEBACK)[1:]
    told = [error for error in map(_exception, blocks) if error and not ECHO.match(error)]
    return OWN_ERROR.sub("", told[-1]) if told else None


def _exception(block: str) -> str:
    after_frames = dropwhile(lambda line: not line.strip() or line[0] == " ", block.splitlines())
    lines = takewhile(lambda line: not END.match(line), after_frames)
    return " ".join(" ".join(lines).split())
