"""What one URL costs in front of TorchServe: `python -m benchmarks.one_url model_store/M.mar`.

The same requests go to TorchServe and to the server in front of it, in turn. It prints the median
latency and the throughput of each round, their differences, and the CPU time of a request in the
server at one URL.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated

import psutil
import typer

from benchmarks.load import Load, load, warm_up
from benchmarks.machine import machine
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.scripts.serving.background import start_one_url
from hf_serve.scripts.serving.ports import free_ports
from hf_serve.scripts.serving.torchserve import TorchServe

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "and",
    "sings",
    "in",
    "a",
    "bar",
    "near",
    "the",
    "water",
]
JSON = "application/json"


def main(
    archive: Annotated[Path, typer.Argument(help="The archive of a model of texts.")],
    clients: Annotated[list[int] | None, typer.Option(help="Numbers of clients.")] = None,
    rounds: int = 5,
    seconds: float = 8.0,
) -> None:
    """Print what one URL costs."""
    bodies = [json.dumps({"inputs": text}) for text in _texts()]
    with tempfile.TemporaryDirectory() as scratch:
        torchserve = TorchServe(
            workdir=Path(scratch),
            model_store=archive.resolve().parent,
            models={archive.stem: archive.name},
        )
        with torchserve as server:
            one_url = start_one_url(server, free_ports().inference, BodyLimits())
            try:
                path = f"/predictions/{archive.stem}"
                urls = (server.inference_url + path, one_url.inference_url + path)
                process = psutil.Process(one_url.pid)
                print(machine())
                for count in clients or [1, 32]:
                    _measure(urls, process, bodies, count, rounds, seconds)
            finally:
                one_url.stop()


def _measure(
    urls: tuple[str, str],
    process: psutil.Process,
    bodies: list[str],
    clients: int,
    rounds: int,
    seconds: float,
) -> None:
    directs, proxied, cpu = list[Load](), list[Load](), list[float]()
    for url in urls:
        warm_up(url, bodies, JSON, clients=clients, seconds=2)
    for number in range(rounds):
        # Each comes first in half of the rounds, as the machine changes with time.
        for url in urls if number % 2 else urls[::-1]:
            before = _cpu_seconds(process)
            found = load(url, bodies, JSON, clients=clients, seconds=seconds)
            if url == urls[0]:
                directs.append(found)
            else:
                proxied.append(found)
                cpu.append(1000 * (_cpu_seconds(process) - before) / max(1, found.requests))
    pairs = list(zip(directs, proxied, strict=True))
    print(
        f"{clients} clients: {median(each.rows_per_second for each in directs):.1f} rows/s and"
        f" {median(each.p50_ms for each in directs):.2f} ms at TorchServe; at one URL"
        f" {median(two.rows_per_second / one.rows_per_second for one, two in pairs):.3f} of the"
        f" rows/s, {median(two.p50_ms - one.p50_ms for one, two in pairs):+.2f} ms,"
        f" {median(cpu):.2f} ms of CPU time a request,"
        f" {sum(each.errors for each in directs + proxied)} errors"
    )


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _texts() -> list[str]:
    """Return texts of 7 to about 80 words."""
    return [". ".join(WORDS[(at + each) % 2] for each in range(1 + at % 10)) for at in range(64)]


if __name__ == "__main__":
    typer.run(main)
