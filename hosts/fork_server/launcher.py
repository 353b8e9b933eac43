"""What TorchServe starts as Python: it has the fork server fork the worker, and waits for its end.

`python -IS launcher.py SOCKET WORKER_SCRIPT ARGUMENTS...`. Where the fork server cannot fork the
worker, or the arguments are not a worker's, this process becomes an ordinary Python with them.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

# `-IS` starts in 20 ms, and without the path of the kit.
sys.path.insert(0, str(Path(__file__).absolute().parents[3]))

from hf_serve.hosts.fork_server.messages import (
    VERSION,
    WORKER_SCRIPTS,
    WorkerRequest,
    connect_socket,
    receive,
    send,
    send_request,
)

# Until the server has imported its modules, which takes long on a busy machine. TorchServe gives a
# worker two minutes to start.
GREETING_SECONDS = 60.0
FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1)


class NotForked(Exception):
    """The server does not fork the worker, for the reason in the message."""


def main(path: str, arguments: list[str]) -> NoReturn:
    """Run a worker as a fork of the server, or in this process."""
    if arguments and Path(arguments[0]).name in WORKER_SCRIPTS:
        try:
            connection = fork_worker(path, arguments)
        except (NotForked, OSError, ValueError, KeyError) as error:
            tell(f"This worker imports all packages itself: {error}")
        else:
            end_like_worker(connection)
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606


def fork_worker(path: str, arguments: list[str]) -> socket.socket:
    """Have the server fork a worker, and return the connection that tells how it ends.

    Raises:
        NotForked: the server refuses, or is another version of the kit.
        OSError: there is no server, or it does not answer.
    """
    connection = connect_socket()
    connection.settimeout(GREETING_SECONDS)
    try:
        connection.connect(path)
        greeting = receive(connection)
    except ConnectionError as error:
        raise NotForked("the fork server has ended; fork_server.log has the reason") from error
    if greeting != {"version": VERSION}:
        raise NotForked("the fork server is another version of the kit")
    connection.settimeout(None)
    forward_signals(connection)
    send_request(connection, WorkerRequest.of_this_process(arguments))
    answer = receive(connection)
    if answer is None or "pid" not in answer:
        restore_signals()
        raise NotForked(answer["refused"] if answer else "the fork server has ended")
    return connection


def forward_signals(connection: socket.socket) -> None:
    """Pass on signals that this process gets."""

    def forward(number: int, _frame: FrameType | None) -> None:
        send(connection, {"signal": number})

    for each in FORWARDED:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, forward)


def restore_signals() -> None:
    """Undo :func:`forward_signals`."""
    for each in FORWARDED:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, signal.SIG_DFL)


def end_like_worker(connection: socket.socket) -> NoReturn:
    """Wait until the worker has ended, and end in the same way."""
    end = receive(connection)
    if end is None:
        tell("The fork server has ended, and this worker with it")
        os._exit(1)
    status = end["status"]
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        tell(f"This worker was ended by {number.name}")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def tell(sentence: str) -> None:
    """Write a line to the log of the worker."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
