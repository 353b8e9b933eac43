"""Measure the engine without a server, in a separate process that has all cores.

Run as a program, it reads a job as JSON from stdin and prints the results as JSON.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from handlers.config.model_config import CONFIG_FILE, ModelConfig
from handlers.engine import Engine
from handlers.errors import KitError, RequestError
from handlers.process.packages import silence_libraries
from handlers.process.threads import set_num_threads
from handlers.telemetry.metrics import Meter
from handlers.types.request import Request
from hosts.defaults import OFFLINE
from scripts.paths import ROOT
from scripts.serving.openmp import openmp_environment
from scripts.serving.torchserve import DROPPED

TIMEOUT = 600


class EngineFailed(KitError):
    """The process exited without results."""

    def __init__(self, folder: Path, output: str) -> None:
        last = output.strip().splitlines()[-1:] or ["it printed no error"]
        super().__init__(f"The engine of {folder.name} could not be measured: {last[0]}.")


@dataclass(frozen=True)
class EngineSpeed:
    """The speed of the engine without HTTP.

    Attributes:
        rows_per_second: in batches of the YAML's `batchSize`, tokenization and decoding included.
        p50_ms: median latency of a single row.
        padding_share: the fraction of computed tokens that is padding.
    """

    rows_per_second: float
    p50_ms: float
    padding_share: float


def measure_in_subprocess(
    folder: Path, workloads: Mapping[str, Sequence[Any]], seconds: float
) -> dict[str, EngineSpeed]:
    """Measure an unpacked archive on each list of inputs, in batches and one row at a time.

    Raises:
        EngineFailed: the archive does not load, a row fails or the process times out.
    """
    job = json.dumps({"folder": str(folder), "workloads": workloads, "seconds": seconds})
    limit = TIMEOUT + 2 * seconds * len(workloads)
    try:
        done = _run(job, limit)
    except subprocess.TimeoutExpired:
        raise EngineFailed(folder, f"it did not finish within {limit:g} s") from None
    if done.returncode:
        raise EngineFailed(folder, done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: EngineSpeed(**speed) for name, speed in found.items()}


def _run(job: str, limit: float) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.engine"],
        cwd=ROOT,
        input=job,
        env={**OFFLINE, **openmp_environment(1, kept), **kept},
        capture_output=True,
        text=True,
        timeout=limit,
    )


def speed(engine: Engine, inputs: Sequence[Any], batch: int, seconds: float) -> EngineSpeed:
    """Measure batches of rows, and single rows, each after a warm-up.

    The first warm-up has all inputs, as some engines prepare each length when it comes first.
    """
    meter, batch = Meter(), min(batch, len(inputs))
    _times(engine, inputs, batch, seconds / 8, Meter(), at_least=len(inputs) // batch)
    together = _times(engine, inputs, batch, seconds / 2, meter)
    _times(engine, inputs, 1, seconds / 8, Meter())
    alone = _times(engine, inputs, 1, seconds / 2, Meter())
    rows_per_second = batch * len(together) / sum(together)
    return EngineSpeed(rows_per_second, 1000 * float(np.median(alone)), meter.padding_share)


def _times(
    engine: Engine,
    inputs: Sequence[Any],
    batch: int,
    seconds: float,
    meter: Meter,
    at_least: int = 1,
) -> list[float]:
    """Return the duration of each batch that starts within a number of seconds."""
    batches, times = _batches(inputs, batch), list[float]()
    end = time.perf_counter() + seconds
    while len(times) < at_least or time.perf_counter() < end:
        requests = next(batches)
        start = time.perf_counter()
        answers = engine.predict(requests, meter)
        times.append(time.perf_counter() - start)
        for answer in answers:
            if isinstance(answer, RequestError):
                raise answer
    return times


def _batches(inputs: Sequence[Any], batch: int) -> Iterator[list[Request]]:
    """Yield batches of rows endlessly, in random order, as a server receives them."""
    generator = random.Random(0)
    while True:
        order = generator.sample(inputs, len(inputs))
        for first in range(0, len(order) - batch + 1, batch):
            yield [Request(each) for each in order[first : first + batch]]


def main() -> None:
    """Run the job from stdin."""
    job = json.load(sys.stdin)
    silence_libraries()
    folder = Path(job["folder"])
    config = ModelConfig.read(folder / CONFIG_FILE)
    set_num_threads(workers=1)
    engine = Engine.load(folder, config)
    found = {
        name: asdict(speed(engine, inputs, config.batchSize, job["seconds"]))
        for name, inputs in job["workloads"].items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
