"""What the logs of a TorchServe say of its workers and archives: it tells only there."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

LOAD_TIMEOUT = "Backend worker did not respond in given time"
START_TIMEOUT = "Backend worker startup time out."

_THREAD = r"W-\d+-(?P<model>.+)_[^_ ]+"
_OUTPUT = re.compile(rf"{_THREAD}-std(?:out|err) MODEL_LOG - (?P<text>.*)")
_EXIT = re.compile(rf"{_THREAD} org\.pytorch\.serve\.\S+ - Retry worker")
_ERROR = re.compile(
    rf"{_THREAD} org\.pytorch\.serve\.\S+ - Backend worker error\n[\w.$]+: (?P<reason>.*)"
)
_PID = re.compile(rf"{_THREAD}-stdout MODEL_LOG - \[PID\](?P<pid>\d+)$", re.M)
_ARCHIVE = re.compile(
    r"Failed to load model: (?P<file>.+)\n[\w.$]*?(?P<reason>\w+(?:: .*)?)$", re.M
)
_CONSOLE = re.compile(r"^(?:Invalid|Unrecognized|Error|.*Exception).*", re.M)
# Errors that TorchServe raises after the actual one: it looks for a built-in handler when an import
# fails, and raises another error after a RuntimeError of the model.
_FOLLOW_UP = re.compile(r"RuntimeError: 50\d - |.*No module named 'ts\.torch_handler\.")


def worker_output(log: str) -> Mapping[str, Sequence[str]]:
    """Return the lines that the workers of each model have written.

    Breaks when TorchServe names the thread of a worker, or `MODEL_LOG`, in another way.
    """
    output = defaultdict[str, list[str]](list)
    for line in _OUTPUT.finditer(log):
        output[line["model"]].append(line["text"])
    return output


def models_with_exited_workers(log: str) -> set[str]:
    """Return the models whose worker TorchServe starts again.

    Breaks when TorchServe does not log `Retry worker`.
    """
    return {match["model"] for match in _EXIT.finditer(log)}


def worker_errors(log: str) -> Mapping[str, str]:
    """Return why TorchServe has ended the last worker of models, such as a timeout of its own.

    Breaks when TorchServe does not log `Backend worker error`, or its timeouts have other texts.
    """
    return {match["model"]: match["reason"] for match in _ERROR.finditer(log)}


def worker_pids(log: str) -> Iterator[tuple[str, str]]:
    """Yield the model and the process id of each worker that was started.

    Breaks when a worker does not write `[PID]`.
    """
    return ((match["model"], match["pid"]) for match in _PID.finditer(log))


def archive_errors(log: str) -> Mapping[str, str]:
    """Return why archives were not read, by the names of their files.

    Breaks when TorchServe does not log `Failed to load model`.
    """
    return {match["file"]: match["reason"] for match in _ARCHIVE.finditer(log)}


def console_error(log: str) -> str | None:
    """Return the first error that Java has written before TorchServe ran; None without one.

    Breaks when Java's messages begin with other words.
    """
    found = _CONSOLE.search(log)
    return found[0] if found else None


def is_follow_up(error: str) -> bool:
    """Return whether an error of a worker is one that another error has caused in TorchServe.

    Breaks when TorchServe looks for built-in handlers in another module, or numbers errors
    otherwise.
    """
    return _FOLLOW_UP.match(error) is not None
