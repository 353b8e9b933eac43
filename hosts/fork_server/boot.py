"""Starts a program and the fork server as its child: `python -IS boot.py SOCKET LOG SLOTS KIT
MODULES COMMAND...`.

This process becomes the program, so that it keeps its id, and the kernel ends the server with it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).absolute().parents[3]))

from hf_serve.hosts.fork_server.messages import SEPARATOR, connect_socket

SERVER = Path(__file__).with_name("server.py")


def main(path: str, log: str, slots: str, kit: str, modules: str, command: list[str]) -> None:
    """Start the server, and become the program, also if the server cannot start."""
    start_server(path, log, slots, kit, modules)
    os.execv(command[0], command)  # noqa: S606


def start_server(path: str, log: str, slots: str, kit: str, modules: str) -> None:
    """Start the server as a child of this process; the log says why where that fails.

    Args:
        path: its socket.
        slots: how many workers load their models at the same time.
        kit: the folder of the `handlers` that it imports.
        modules: what it imports, with commas.
    """
    listener = connect_socket()
    try:
        # Launchers wait here until the server has imported its modules.
        listener.bind(path)
        listener.listen(128)
    except OSError as error:  # The path is too long, or its disk has no sockets.
        Path(log).write_text(f"There is no fork server: {path}: {error}\n", encoding="utf-8")
        return
    parent = os.getpid()
    if os.fork() == 0:
        listener.set_inheritable(True)
        _redirect(log)
        options = [slots, kit, *modules.split(SEPARATOR)]
        command = [sys.executable, str(SERVER), str(listener.fileno()), str(parent), *options]
        os.execv(sys.executable, command)  # noqa: S606
    listener.close()


def _redirect(log: str) -> None:
    """Write to a file, also where the program writes to a terminal."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)


if __name__ == "__main__":
    _socket, _log, _slots, _kit, _modules, *_command = sys.argv[1:]
    main(_socket, _log, _slots, _kit, _modules, _command)
