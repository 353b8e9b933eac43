"""Pack a model in one format, or measure what was packed: a program for a separate process.

It reads JSON from stdin: the `path` of a YAML to pack, or of an archive with the `rows` and the
`seconds` to measure it. The outcome is JSON on its last line.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from hf_serve.handlers.checkpoints.placement import serving_device_type
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import KitError, RequestError
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.handlers.process.threads import set_num_threads
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from hf_serve.hosts.archives import config_file
from hf_serve.scripts.archives.packing import pack

# The clients whose requests a worker gets at once, if its `batchSize` allows.
CLIENTS = 32
# Tokens of each text of a model that generates.
NEW_TOKENS = 32

Row = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class Speed:
    """The speed and memory of a model in one process, without a server.

    Attributes:
        batch: rows at once.
        rows_per_second: in such batches, tokenization and decoding included.
        tokens_per_second: new tokens, of a model that generates; None for others.
        p50_ms: the median time of one row alone.
        p99_ms: the time that one row of a hundred exceeds.
        bytes: the memory of the process, and what it has on an accelerator.
        private: the memory that each worker of the model has alone.
        shared: the memory that workers have in common: pages of files, such as mapped weights.
        size: the bytes of the archive.
        refused: rows that the model refused, which were left out.
        fidelity: the comparison with the checkpoint in float32; None of a model that is exact.
    """

    batch: int
    rows_per_second: float
    tokens_per_second: float | None
    p50_ms: float
    p99_ms: float
    bytes: int
    private: int
    shared: int
    size: int
    refused: int
    fidelity: dict[str, Any] | None


class NoRows(KitError):
    """No row can be measured."""


def main() -> None:
    """Pack or measure what stdin names."""
    given = json.load(sys.stdin)
    silence_libraries()
    try:
        outcome = measure(**given) if "rows" in given else _pack(Path(given["path"]))
    except KitError as error:
        outcome = {"problem": str(error)}
    print(json.dumps(outcome))  # noqa: T201 - the other process reads it


def _pack(config_path: Path) -> dict[str, Any]:
    pack(
        config_path,
        archive_format="no-archive",
        export_path=config_path.parent / "archives",
        checked=False,
    )
    return {}


def measure(path: str, rows: Sequence[Row], seconds: float) -> dict[str, Any]:
    """Load the archive of a folder, and measure it.

    Args:
        rows: inputs and parameters of each request.
        seconds: how long batches, and then single rows, are measured.

    Raises:
        KitError: it does not load, or refuses all rows.
    """
    folder = Path(path)
    config = ModelConfig.read(config_file(folder))
    set_num_threads(workers=1)
    device = device_of(config)
    engine = Engine.load(folder, config, device)
    batch = min(CLIENTS, config.batchSize, len(rows))
    requests = [Request(inputs, _parameters(engine, given)) for inputs, given in rows]
    answered = _answered(engine, requests, batch, seconds)
    batch = min(batch, len(answered))
    together = measure_times(engine, answered, batch, seconds)
    alone = measure_times(engine, answered, 1, seconds)
    rows_per_second = batch * len(together) / sum(together)
    p50, p99 = np.percentile(alone, [50, 99])
    report, memory = FidelityReport.find(folder), psutil.Process().memory_info()
    shared = getattr(memory, "shared", 0)  # Linux has it.
    speed = Speed(
        batch=batch,
        rows_per_second=rows_per_second,
        tokens_per_second=rows_per_second * NEW_TOKENS if _counts_tokens(engine) else None,
        p50_ms=1000 * float(p50),
        p99_ms=1000 * float(p99),
        bytes=memory.rss + _device_bytes(device),
        private=memory.rss - shared,
        shared=shared,
        size=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        refused=len(requests) - len(answered),
        fidelity=report.as_json() if report else None,
    )
    return asdict(speed)


def measure_times(
    engine: Engine,
    requests: Sequence[Request],
    batch: int,
    seconds: float,
    meter: Meter | None = None,
    at_least: int = 1,
) -> list[float]:
    """Return the time of each batch that starts within a number of seconds.

    Args:
        meter: counts tokens and padding; by default nobody reads it.
        at_least: the least number of batches.

    Raises:
        RequestError: a row is refused.
    """
    batches, times = _batches(requests, batch), list[float]()
    end = time.perf_counter() + seconds
    while len(times) < at_least or time.perf_counter() < end:
        rows = next(batches)
        start = time.perf_counter()
        outcomes = engine.predict(rows, meter)
        times.append(time.perf_counter() - start)
        for outcome in outcomes:
            if isinstance(outcome, RequestError):
                raise outcome
    return times


def device_of(config: ModelConfig) -> torch.device:
    """Return the device that TorchServe gives to a worker of a model here."""
    return torch.device(serving_device_type(config.deviceType))


def _answered(
    engine: Engine, requests: Sequence[Request], batch: int, seconds: float
) -> list[Request]:
    """Warm up with all rows, within a time; return the rows that the model answers.

    Raises:
        NoRows: it answers none.
    """
    answered, refusal = list[Request](), None
    end = time.perf_counter() + 2 * seconds
    for first in range(0, len(requests), batch):
        rows = requests[first : first + batch]
        for row, outcome in zip(rows, engine.predict(rows), strict=True):
            if isinstance(outcome, RequestError):
                refusal = outcome
            else:
                answered.append(row)
        if answered and time.perf_counter() > end:
            break
    if not answered:
        raise NoRows(f"The model answers none of the {len(requests)} rows: {refusal}")
    return answered


def _batches(requests: Sequence[Request], batch: int) -> Iterator[list[Request]]:
    """Yield batches of rows endlessly, in random order, as a server receives them."""
    generator = random.Random(0)
    while True:
        order = generator.sample(requests, len(requests))
        for first in range(0, len(order) - batch + 1, batch):
            yield order[first : first + batch]


def _counts_tokens(engine: Engine) -> bool:
    parameters = engine.task.parameters.model_fields
    return engine.task.description.generation.texts and "min_new_tokens" in parameters


def _parameters(engine: Engine, given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a row; each text has the same number of new tokens."""
    if not _counts_tokens(engine):
        return given
    return {**given, "max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}


def _device_bytes(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


if __name__ == "__main__":
    main()
