"""The faults, one function each: it happens once, while clients send requests."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.reliability.clients import Expected, body_of
from scripts.kit.ports import HOST
from scripts.kit.server import Server

MODEL = "soak"
PATH = f"/predictions/{MODEL}/1.0/v2/models/{MODEL}/infer"
CONNECTIONS, HANG_UPS = 40, 200
# Seconds between two bytes of a slow request.
SLOWNESS = 0.02
CGROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
# Of what a worker has in memory, less than it needs.
MEMORY_SHARE = 0.5

Fault = Callable[[Server, Expected, float], str]


class CannotTry(Exception):
    """This machine does not allow the fault; the message says why."""


def worker_pids(server: Server) -> list[int]:
    """Return the processes of the workers that are ready."""
    workers = [each for version in server.describe(MODEL) for each in version["workers"]]
    return [int(each["pid"]) for each in workers if each["status"] == "READY"]


def kill_a_worker(server: Server, _expected: Expected, _seconds: float) -> str:
    """Kill a worker with `kill -9`."""
    os.kill(worker_pids(server)[0], signal.SIGKILL)
    return ""


def stop_a_worker(server: Server, _expected: Expected, _seconds: float) -> str:
    """Stop a worker with SIGSTOP; TorchServe kills it after `responseTimeout`."""
    os.kill(worker_pids(server)[0], signal.SIGSTOP)
    return ""


def send_halves_and_slowly(server: Server, expected: Expected, seconds: float) -> str:
    """Send half of each of many requests, and others a byte at a time."""
    message = _message(server, next(iter(expected)))
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            opened.enter_context(_connection(server)).sendall(message[: len(message) // 2])
        slow = opened.enter_context(_connection(server))
        slow.settimeout(seconds + 10)
        pause = min(SLOWNESS, seconds / len(message))
        for byte in message:
            slow.sendall(bytes([byte]))
            time.sleep(pause)
        answer = slow.recv(1 << 16)
    status = answer.split(b" ", 2)[1].decode()
    return f"{CONNECTIONS} half requests; the slow one got status {status}"


def hang_up(server: Server, expected: Expected, seconds: float) -> str:
    """Send whole requests and close the connection before the answer."""
    message = _message(server, next(iter(expected)))
    for _ in range(HANG_UPS):
        with _connection(server) as connection:
            connection.sendall(message)
        time.sleep(seconds / 2 / HANG_UPS)
    return f"{HANG_UPS} clients hung up"


def limit_memory(server: Server, _expected: Expected, seconds: float) -> str:
    """Give a worker a cgroup with less memory than it has, in which Linux kills it."""
    worker = psutil.Process(worker_pids(server)[0])
    limit = int(worker.memory_info().rss * MEMORY_SHARE)
    with _cgroup(limit) as join:
        join(worker.pid)
        end = time.monotonic() + seconds
        while worker.is_running() and time.monotonic() < end:
            time.sleep(0.05)
        if worker.is_running():
            raise CannotTry("Linux did not kill a worker that has more memory than its cgroup")
    return f"a worker with {limit >> 20} MiB was killed"


@contextmanager
def full_disk(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    """Mount a small file system on a folder; yields a function that fills it.

    Raises:
        CannotTry: this process may not mount.
    """
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if not mount or not umount:
        raise CannotTry("there is no mount command")
    command = [mount, "-t", "tmpfs", "-o", f"size={size}", "soak", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotTry(f"this process may not mount a file system: {done.stderr.strip()}")
    try:
        yield lambda: _fill(folder / ".filling")
    finally:
        subprocess.run([umount, "--lazy", str(folder)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


@contextmanager
def _cgroup(limit: int) -> Iterator[Callable[[int], None]]:
    """Make a cgroup with a limit of memory in bytes; yields a function that moves a process to it.

    Raises:
        CannotTry: this process may not make one.
    """
    is_first = (CGROUPS[0] / "memory.limit_in_bytes").exists()
    folder = CGROUPS[0 if is_first else 1] / f"soak-{os.getpid()}"
    try:
        folder.mkdir()
        if is_first:
            (folder / "memory.move_charge_at_immigrate").write_text("1")
        limit_file = folder / ("memory.limit_in_bytes" if is_first else "memory.max")
        limit_file.write_text(str(limit))
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        raise CannotTry(f"this process may not make a cgroup with a limit: {error}") from None

    def join(pid: int) -> None:
        try:
            (folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise CannotTry(f"the process cannot join the cgroup: {error}") from None

    try:
        yield join
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a cgroup, whose last process may not have ended yet."""
    for _ in range(100):
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.05)


def _message(server: Server, text: str) -> bytes:
    body = json.dumps(body_of("raw", text)).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {HOST}:{server.ports.inference}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _connection(server: Server) -> socket.socket:
    return socket.create_connection((HOST, server.ports.inference), timeout=30)


FAULTS: dict[str, Fault] = {
    "kill -9 of a worker": kill_a_worker,
    "SIGSTOP of a worker": stop_a_worker,
    "half-sent and slow requests": send_halves_and_slowly,
    "clients that hang up": hang_up,
    "memory limit of a cgroup": limit_memory,
}
