"""This kit on TorchServe, with a YAML file of text generation."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

from transformers import AutoTokenizer

from benchmarks.contenders.kit import Kit
from benchmarks.text_generation.contender import GenerationContender, Job, Speed, Turn
from benchmarks.text_generation.latency import hang_ups, latency
from benchmarks.text_generation.streams import TextClient, speed
from benchmarks.text_generation.workloads import GenerationRequest


class KitServer(GenerationContender):
    """The server, whose clients wait for whole texts.

    Args:
        kit: the archive and its server.
    """

    name = "kit"

    def __init__(self, kit: Kit) -> None:
        self.precision = kit.precision
        self._kit = kit

    def prepare(self) -> None:
        _pack(self._kit)

    def measure(self, job: Job) -> Turn:
        self._kit.start()
        try:
            tokenizer = AutoTokenizer.from_pretrained(job.checkpoint)
            return self._turn(TextClient(self.name, self._kit.url, tokenizer), job)
        finally:
            self._kit.stop()

    def _turn(self, client: TextClient, job: Job) -> Turn:
        return Turn(_speeds(client.generate, job))


class StreamingKitServer(KitServer):
    """The server, whose clients read streams; its latency is measured as well."""

    name = "kit_streamed"

    def _turn(self, client: TextClient, job: Job) -> Turn:
        speeds, delays = _speeds(client.read_stream, job), latency(client, job)
        kit = self._kit
        left = hang_ups(client, job, kit.leader, kit.metrics_url)
        return Turn(speeds, delays, left)


def _speeds(send: Callable[[GenerationRequest], object], job: Job) -> dict[str, Speed]:
    """Warm up, and measure each setting."""
    clients = job.plan.clients
    end = time.monotonic() + job.plan.warm
    while time.monotonic() < end:
        speed(send, job.warm_up, clients)
    return {name: speed(send, each, clients) for name, each in job.workloads.items()}


@cache
def _pack(kit: Kit) -> None:
    """Pack the archive once in a run."""
    kit.pack(checked=False)
