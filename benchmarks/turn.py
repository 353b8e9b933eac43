"""One turn of a contender: started, warmed up, measured with each number of clients, stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders.base import Contender
from benchmarks.engine import EngineSpeed, in_own_process
from benchmarks.load import Load, load, warm_up
from benchmarks.startup import first_answer, worker_bytes

SAME = "same"


@dataclass(frozen=True)
class Plan:
    """How long is measured: seconds for each number of clients, and before that to warm up."""

    clients: tuple[int, ...]
    seconds: float
    warm: float


@dataclass(frozen=True)
class Turn:
    """What one turn gave.

    Attributes:
        first_answer_seconds: from the start of the server.
        worker_bytes: memory of the worker after the load.
        loads: by number of clients.
        engine: the same archive and rows without a server; None where it is not this kit's.
        longer: the engine's speed with other rows, by their name.
    """

    first_answer_seconds: float
    worker_bytes: int
    loads: dict[int, Load]
    engine: EngineSpeed | None = None
    longer: dict[str, EngineSpeed] = field(default_factory=dict)


def turn(
    contender: Contender,
    inputs: Sequence[Any],
    plan: Plan,
    unpacked: Path | None,
    longer: Mapping[str, Sequence[Any]],
) -> Turn:
    """Measure a contender, and its engine where there is an unpacked archive.

    Raises:
        KitError: when it does not start or does not answer; nothing is left running then.
    """
    bodies = [contender.body(each) for each in inputs]
    try:
        seconds = first_answer(contender, inputs[0])
        loads = {}
        for clients in plan.clients:
            kind = contender.content_type
            warm_up(contender.url, bodies, kind, clients=clients, seconds=plan.warm)
            # What wrk no longer waits for is computed all the same; this waits for the end of it.
            contender.ask(inputs[0])
            loads[clients] = load(
                contender.url, bodies, kind, clients=clients, seconds=plan.seconds
            )
            contender.ask(inputs[0])
        memory = worker_bytes(contender.leader)
    finally:
        contender.stop()
    rows = {SAME: inputs, **longer}
    engines = in_own_process(unpacked, rows, plan.seconds) if unpacked else {}
    return Turn(seconds, memory, loads, engines.pop(SAME, None), engines)
