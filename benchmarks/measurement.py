"""Measure a contender: start, warm up, measure with each number of clients, stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders.base import Contender
from benchmarks.engine import EngineSpeed, measure_in_subprocess
from benchmarks.load import Load, load, warm_up
from benchmarks.startup import first_answer, python_bytes

SAME_INPUTS = "same"


@dataclass(frozen=True)
class Plan:
    """Numbers of clients, and the seconds to measure and to warm up for each."""

    clients: tuple[int, ...]
    seconds: float
    warm: float


@dataclass(frozen=True)
class Measurement:
    """The results of measuring a contender once.

    Attributes:
        first_answer_seconds: seconds from the start of the server to the first response.
        worker_bytes: memory of the Python processes after the load.
        loads: results by number of clients.
        engine: the same archive and rows without a server; None for servers other than this kit.
        longer: speed of the engine with additional inputs, by name.
    """

    first_answer_seconds: float
    worker_bytes: int
    loads: dict[int, Load]
    engine: EngineSpeed | None = None
    longer: dict[str, EngineSpeed] = field(default_factory=dict)


def measure(
    contender: Contender,
    inputs: Sequence[Any],
    plan: Plan,
    unpacked: Path | None,
    longer: Mapping[str, Sequence[Any]],
) -> Measurement:
    """Measure a contender, and its engine if there is an unpacked archive.

    Raises:
        KitError: the contender does not start or respond; it is stopped.
    """
    bodies = [contender.body(each) for each in inputs]
    try:
        seconds = first_answer(contender, inputs[0])
        loads = {}
        for clients in plan.clients:
            kind = contender.content_type
            warm_up(contender.url, bodies, kind, clients=clients, seconds=plan.warm)
            # The server still computes requests that wrk has abandoned; wait until they are done.
            contender.ask(inputs[0])
            loads[clients] = load(
                contender.url, bodies, kind, clients=clients, seconds=plan.seconds
            )
            contender.ask(inputs[0])
        memory = python_bytes(contender.leader)
    finally:
        contender.stop()
    rows = {SAME_INPUTS: inputs, **longer}
    engines = measure_in_subprocess(unpacked, rows, plan.seconds) if unpacked else {}
    return Measurement(seconds, memory, loads, engines.pop(SAME_INPUTS, None), engines)
