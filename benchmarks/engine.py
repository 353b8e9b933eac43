"""Measure the engine without a server, in a separate process that has all cores.

Run as a program, it reads a job as JSON from stdin and prints the results as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_serve.handlers.config.model_config import CONFIG_FILE, ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import KitError
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.handlers.process.threads import set_num_threads
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.scripts.benchmark.measure import measure_times
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.openmp import openmp_environment
from hf_serve.scripts.serving.torchserve import DROPPED

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
    requests = [Request(each) for each in inputs]
    measure_times(engine, requests, batch, seconds / 8, at_least=len(inputs) // batch)
    together = measure_times(engine, requests, batch, seconds / 2, meter)
    measure_times(engine, requests, 1, seconds / 8)
    alone = measure_times(engine, requests, 1, seconds / 2)
    rows_per_second = batch * len(together) / sum(together)
    return EngineSpeed(rows_per_second, 1000 * float(np.median(alone)), meter.padding_share)


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
