"""Messages between the launcher of a worker and the fork server: JSON, one a packet."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# The scripts of workers: of TorchServe, and of the server at one URL.
TORCHSERVE_SCRIPT, MODEL_SCRIPT = "model_service_worker.py", "model_process.py"
WORKER_SCRIPTS = frozenset({TORCHSERVE_SCRIPT, MODEL_SCRIPT})
# A launcher and a server of two versions of the kit do not understand each other.
VERSION = 1
# What the kernel takes as one packet by default is below 212,992 bytes.
MAX_BYTES = 1 << 18
STANDARD_STREAMS = (0, 1, 2)
# Between the names of modules in an argument.
SEPARATOR = ","
# The line in the log of the server for the end of a worker.
ENDED = "Worker {pid} {end}"
OUT_OF_MEMORY = ", as the system was out of memory"

Message = dict[str, Any]


class WorkerRequest(NamedTuple):
    """A worker to fork.

    It is no dataclass, whose module takes each launcher 30 milliseconds to import.

    Attributes:
        arguments: the script of the worker and its arguments.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str

    @classmethod
    def of_this_process(cls, arguments: Sequence[str]) -> WorkerRequest:
        """Return the request for a worker with the variables and the folder of this process."""
        return cls(list(arguments), dict(os.environ), str(Path.cwd()))


def connect_socket() -> socket.socket:
    """Return a new socket for packets."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message."""
    connection.sendall(json.dumps(message).encode())


def receive(connection: socket.socket) -> Message | None:
    """Return the next message; None if the other side has closed the connection."""
    packet = connection.recv(MAX_BYTES)
    return json.loads(packet) if packet else None


def send_request(connection: socket.socket, request: WorkerRequest) -> None:
    """Send a request together with the standard streams of this process."""
    packet = json.dumps(request._asdict()).encode()
    socket.send_fds(connection, [packet], STANDARD_STREAMS)


def receive_request(connection: socket.socket) -> tuple[WorkerRequest, list[int]] | None:
    """Return a request and its standard streams; None if the connection is closed."""
    packet, streams, _flags, _address = socket.recv_fds(
        connection, MAX_BYTES, len(STANDARD_STREAMS)
    )
    return (WorkerRequest(**json.loads(packet)), streams) if packet else None
