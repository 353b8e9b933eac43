"""Wait until a server has answered its requests, before it stops."""

from __future__ import annotations

import time

import psutil

from scripts.serving.server import Server

# Seconds to wait for requests at most.
DRAIN_SECONDS = 30.0
# Seconds between two looks, and the CPU time between them that a worker without requests stays
# below: the kernel counts CPU time in steps of 10 ms.
INTERVAL, IDLE = 0.5, 0.03
# Looks in a row without a request.
LOOKS = 2


def drain(server: Server, timeout: float = DRAIN_SECONDS) -> bool:
    """Wait until no request waits for a worker, and no worker computes.

    TorchServe tells how many requests wait, but not how many run: a worker that runs some uses CPU
    time, itself or in the process of its engine. TorchServe cannot be told to take no new requests.

    Args:
        server: a server; one that has ended has no requests.
        timeout: seconds to wait at most.

    Returns:
        Whether every request was answered in time.
    """
    deadline = time.monotonic() + timeout
    looks, before = 0, _cpu_seconds(server)
    while looks < LOOKS and server.is_alive():
        if time.monotonic() >= deadline:
            return False
        time.sleep(INTERVAL)
        now = _cpu_seconds(server)
        is_idle = abs(now - before) < IDLE and not _waiting(server)
        looks, before = (looks + 1 if is_idle else 0), now
    return True


def _waiting(server: Server) -> int:
    """Return how many requests wait in the queues of the models."""
    versions = [each for model in server.models for each in server.describe(model, version="all")]
    return sum(each.get("jobQueueStatus", {}).get("pendingRequests", 0) for each in versions)


def _cpu_seconds(server: Server) -> float:
    """Return the CPU time of the workers and of the processes that they have started."""
    processes = {
        each.pid: each for worker in server.workers() for each in [worker, *_children(worker)]
    }
    return sum(map(_cpu_seconds_of, processes.values()))


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _cpu_seconds_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
