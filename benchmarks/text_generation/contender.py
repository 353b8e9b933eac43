"""The interface of a contender of text generation, and its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.text_generation import workloads
from benchmarks.text_generation.workloads import SETTINGS, GenerationRequest


@dataclass(frozen=True)
class Plan:
    """What is measured in each round.

    Attributes:
        clients: the number of requests that run at the same time, at most.
        requests: the number of requests of each setting.
        seconds: when contenders that take long for all requests stop.
        repeats: the number of short requests that measure the time to the first token.
        hang_ups: the number of clients that close the connection during a stream.
        warm: seconds of requests to a server before the measured ones. Java compiles TorchServe
            during the first minutes: after 100 seconds its compiler still takes 3% of a core.
    """

    clients: int = 32
    requests: int = 128
    seconds: float = 60
    repeats: int = 20
    hang_ups: int = 200
    warm: float = 180


@dataclass(frozen=True)
class Job:
    """A model with its requests.

    Attributes:
        name: the name of the model.
        checkpoint: its folder.
        vocabulary: the size of its vocabulary.
        plan: what is measured.
    """

    name: str
    checkpoint: Path
    vocabulary: int
    plan: Plan

    @cached_property
    def workloads(self) -> dict[str, list[GenerationRequest]]:
        """The requests of each setting."""
        count, vocabulary = self.plan.requests, self.vocabulary
        return {each: workloads.workload(each, count, vocabulary) for each in SETTINGS}

    @cached_property
    def warm_up(self) -> list[GenerationRequest]:
        """Requests before the measured ones."""
        return workloads.warm_up(self.plan.requests, self.vocabulary)


@dataclass(frozen=True)
class Speed:
    """The number of tokens that were asked for and generated, and the seconds of all of them."""

    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """The throughput."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Latency:
    """Times to the first token of short requests, and between tokens of long streams.

    Attributes:
        idle_ms: median time to the first token while nothing else runs.
        busy_ms: the same beside long streams.
        gap_p50_ms: median time between two tokens of a long stream.
        gap_p99_ms: its 99th percentile.
    """

    idle_ms: float
    busy_ms: float
    gap_p50_ms: float
    gap_p99_ms: float


@dataclass(frozen=True)
class HangUps:
    """A server before and after clients closed their connections during a stream.

    Attributes:
        clients: the number of clients.
        bytes_before: memory of the Python processes of the server; likewise after.
        threads_before: threads of these processes; likewise after.
        running_after: the texts that run by the server's metrics, in the end; None without them.
        idle_ms: median time to the first token of a short request before.
        next_ms: the time of the first request after the last client has hung up.
        after_ms: the median of the requests that follow it.
    """

    clients: int
    bytes_before: int
    bytes_after: int
    threads_before: int
    threads_after: int
    running_after: float | None
    idle_ms: float
    next_ms: float
    after_ms: float


@dataclass(frozen=True)
class Turn:
    """The results of a contender in one round; the last two only of the streaming server."""

    speeds: dict[str, Speed]
    latency: Latency | None = None
    hang_ups: HangUps | None = None


class GenerationContender(ABC):
    """An engine or a server with one model.

    Attributes:
        name: the name on the command line and in the results.
        precision: the dtype of its matrix products.
    """

    name: str
    precision: str

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Export or pack the model, once for all rounds.

        Raises:
            KitError: it is not possible, or the contender is not installed.
        """

    @abstractmethod
    def measure(self, job: Job) -> Turn:
        """Start, warm up, run the requests of each setting and stop.

        Raises:
            KitError: the contender fails; its processes are stopped.
        """
