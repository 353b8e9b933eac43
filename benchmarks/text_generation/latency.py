"""Measure times to the first token and between tokens, and a server whose clients hang up."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, islice, pairwise
from statistics import median

import httpx
import numpy as np
import psutil

from benchmarks.contenders.base import TIMEOUT
from benchmarks.startup import python_bytes
from benchmarks.text_generation.contender import HangUps, Job, Latency
from benchmarks.text_generation.streams import TextClient
from benchmarks.text_generation.workloads import GenerationRequest, long_requests, short_requests
from hf_serve.scripts.serving.processes import group_members

# Requests for each long stream; after them the client begins again with the first.
PROMPTS_PER_STREAM = 8
PAUSE = 0.25  # seconds before a short request, at most: it may arrive at any time of a step
# The gauge of a server that runs requests side by side.
RUNNING = "hf_running_texts"
READ_EVENTS = 3  # before a client hangs up
REPORT_SECONDS = 2  # the server sets its gauges once per second


@dataclass
class LongStreams:
    """Clients that read long streams, one after the other, until they are stopped.

    Attributes:
        client: the client.
        requests: the requests of each stream, in turn.
        times: the times of the events of each response.
    """

    client: TextClient
    requests: Sequence[Sequence[GenerationRequest]]
    times: list[list[float]] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the streams, wait for the first token of each, and stop them in the end.

        Raises:
            KitError: a stream failed.
        """
        self._stopped = threading.Event()
        begun = [threading.Event() for _ in self.requests]
        with ThreadPoolExecutor(len(begun)) as threads:
            futures = [
                threads.submit(self._read, requests, event)
                for requests, event in zip(self.requests, begun, strict=True)
            ]
            try:
                _wait_for(begun, futures)
                yield
            finally:
                self._stopped.set()
            for future in futures:
                future.result()

    def gaps(self, since: float) -> list[float]:
        """Return the seconds between two tokens of a stream, from a time on."""
        pairs = (pair for times in self.times for pair in pairwise(times))
        return [later - earlier for earlier, later in pairs if earlier >= since]

    def _read(self, requests: Sequence[GenerationRequest], begun: threading.Event) -> None:
        for number in count():
            times = list[float]()
            self.times.append(times)
            for at in self.client.stream(requests[number % len(requests)]):
                times.append(at)
                begun.set()
                if self._stopped.is_set():
                    return


def latency(client: TextClient, job: Job) -> Latency:
    """Measure short requests alone, then beside long streams of all clients but one."""
    shorts = short_requests(2 * job.plan.repeats, job.vocabulary)
    idle = [client.first_token_ms(each) for each in shorts[: job.plan.repeats]]
    streams = LongStreams(client, staggered(job.plan.clients - 1, job.vocabulary))
    pauses = random.Random(0)
    with streams.running():
        start, busy = time.perf_counter(), []
        for each in shorts[job.plan.repeats :]:
            time.sleep(pauses.uniform(0, PAUSE))
            busy.append(client.first_token_ms(each))
    p50, p99 = np.percentile(streams.gaps(start), (50, 99))
    return Latency(median(idle), median(busy), 1000 * float(p50), 1000 * float(p99))


def staggered(streams: int, vocabulary: int) -> list[list[GenerationRequest]]:
    """Return the requests of each long stream.

    The first ones differ in length, so that later ones do not all begin at the same time.
    """
    requests = long_requests(streams * PROMPTS_PER_STREAM, vocabulary)
    found = [requests[number::streams] for number in range(streams)]
    for number, own in enumerate(found, start=1):
        own[0] = replace(own[0], new_tokens=max(1, own[0].new_tokens * number // streams))
    return found


def hang_ups(client: TextClient, job: Job, leader: int, metrics_url: str) -> HangUps:
    """Measure a server before and after clients hang up during a stream.

    Args:
        client: the client.
        job: the model and the number of clients.
        leader: the process id of the leader of the server's process group.
        metrics_url: the URL of its metrics.

    Raises:
        KitError: a request fails.
    """
    first, *shorts = short_requests(2 + 2 * job.plan.repeats, job.vocabulary)
    client.first_token_ms(first)
    idle = median(client.first_token_ms(each) for each in shorts[: job.plan.repeats])
    bytes_before, threads_before = python_bytes(leader), _threads(leader)
    requests = long_requests(job.plan.hang_ups, job.vocabulary)
    with ThreadPoolExecutor(job.plan.clients) as clients:
        list(clients.map(lambda each: _hang_up(client, each), requests))
    following, *rest = (client.first_token_ms(each) for each in shorts[job.plan.repeats :])
    bytes_after, threads_after = python_bytes(leader), _threads(leader)
    time.sleep(REPORT_SECONDS)
    metrics = httpx.get(metrics_url, timeout=TIMEOUT, trust_env=False).text
    return HangUps(
        clients=job.plan.hang_ups,
        bytes_before=bytes_before,
        bytes_after=bytes_after,
        threads_before=threads_before,
        threads_after=threads_after,
        running_after=gauge(metrics, RUNNING),
        idle_ms=idle,
        next_ms=following,
        after_ms=median(rest),
    )


def gauge(metrics: str, name: str) -> float | None:
    """Return the sum of a gauge over its labels, from metrics in the format of Prometheus."""
    values = [line.split()[-1] for line in metrics.splitlines() if line.startswith(f"{name}{{")]
    return sum(map(float, values)) if values else None


def _hang_up(client: TextClient, request: GenerationRequest) -> None:
    stream = client.stream(request)
    for _ in islice(stream, READ_EVENTS):
        pass
    stream.close()


def _wait_for(begun: Sequence[threading.Event], futures: Sequence[Future[None]]) -> None:
    for event, future in zip(begun, futures, strict=True):
        while not event.wait(0.1):
            if future.done():
                future.result()


def _threads(leader: int) -> int:
    """Return the threads of the Python processes of a group."""
    return sum(map(_python_threads, group_members(leader)))


def _python_threads(process: psutil.Process) -> int:
    """Return the threads of a Python process; 0 for other processes and those that have exited."""
    try:
        return process.num_threads() if "python" in process.name() else 0
    except psutil.NoSuchProcess:
        return 0
