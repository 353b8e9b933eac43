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

from benchmarks.reliability.clients import TIMEOUT, Expected, body_of
from hf_serve.scripts.serving.ports import HOST
from hf_serve.scripts.serving.server import Server

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
        slow.settimeout(seconds + TIMEOUT)
        pause = min(SLOWNESS, seconds / len(message))
        for byte in message:
            slow.sendall(bytes([byte]))
            time.sleep(pause)
        answer = slow.recv(1 << 16)
    status = answer.split(b" ", 2)[1].decode() if answer else "0"
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
    """Replace a worker by one in a cgroup without memory for it, until Linux has killed that."""
    worker = psutil.Process(worker_pids(server)[0])
    limit = int(worker.memory_info().rss * MEMORY_SHARE)
    with _cgroup(limit, server.pid) as killed:
        worker.kill()
        end = time.monotonic() + 3 * seconds
        while not killed() and time.monotonic() < end:
            time.sleep(0.05)
        if not killed():
            raise CannotTry("Linux did not kill a worker that needs more than its cgroup has")
    return f"a worker was killed at {limit >> 20} MiB, until the limit was lifted"


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
def _cgroup(limit: int, pid: int) -> Iterator[Callable[[], bool]]:
    """Give a process, and those that it starts, a cgroup with a limit of memory in bytes.

    Yields a function that tells whether Linux has killed a process for it. What a process had
    before does not count.

    Raises:
        CannotTry: this process may not make a cgroup.
    """
    is_first = (CGROUPS[0] / "memory.limit_in_bytes").exists()
    root = CGROUPS[0 if is_first else 1]
    folder, former = root / f"soak-{os.getpid()}", root / _cgroup_of(pid, is_first=is_first)
    limit_name, events = (
        ("memory.limit_in_bytes", "memory.oom_control")
        if is_first
        else ("memory.max", "memory.events")
    )
    try:
        folder.mkdir()
        (folder / limit_name).write_text(str(limit))
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        _remove(folder)
        raise CannotTry(f"this process may not make a cgroup with a limit: {error}") from None
    before = _kills(folder / events)
    try:
        yield lambda: _kills(folder / events) > before
    finally:
        (folder / limit_name).write_text("-1" if is_first else "max")
        for member in (folder / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (former / "cgroup.procs").write_text(member)
        _remove(folder)


def _cgroup_of(pid: int, *, is_first: bool) -> str:
    """Return the path of the cgroup that limits the memory of a process."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    names = dict(line.split(":", 2)[1:] for line in lines)
    return names["memory" if is_first else ""].lstrip("/")


def _kills(events: Path) -> int:
    """Return how many processes Linux has killed for a cgroup."""
    pairs = (line.split() for line in events.read_text(encoding="utf-8").splitlines())
    return next((int(count) for name, count in pairs if name == "oom_kill"), 0)


def _remove(folder: Path) -> None:
    """Remove a cgroup, whose last process may not have ended yet."""
    for _ in range(100):
        if not folder.exists():
            return
        with suppress(OSError):
            folder.rmdir()
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
