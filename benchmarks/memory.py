"""Measure the memory of each worker over time under a mixed load, with the demo models.

`python -m benchmarks.memory --minutes 30` packs the models, serves them, and prints the resident
memory of each worker after warm-up, after five minutes and at the end.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import httpx
import psutil
import typer

from hf_serve.demo_models import ensure
from hf_serve.handlers import tasks
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.default_modes import default_modes
from hf_serve.scripts.paths import BUILD, MODEL_CONFIGS
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe

PHRASES = (
    "a fine film with a great cast and lovely music by a singer from Paris whose brother lives in "
    "New York where the new theatre opened last year and nobody knows who plays the piano tonight"
)
WORDS = PHRASES.split()
SHORTEST, LONGEST = 3, 400
# A prompt and its new tokens have to fit the positions of the model.
LONGEST_PROMPT = 60
EXPLAINED_EVERY = 10
MB = 2**20


@dataclass
class Curve:
    """Resident memory of a worker in MB, by seconds since the load began."""

    model: str
    pid: int
    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)

    def sample(self, now: float) -> None:
        """Add the memory of the process now."""
        self.seconds.append(round(now, 1))
        self.megabytes.append(round(psutil.Process(self.pid).memory_info().rss / MB, 1))

    def at(self, seconds: float) -> float:
        """Return the memory at the sample nearest to a time."""
        nearest = min(range(len(self.seconds)), key=lambda i: abs(self.seconds[i] - seconds))
        return self.megabytes[nearest]


class MixedLoad:
    """Clients that send texts of random lengths to random models; every tenth is explained."""

    def __init__(self, url: str, clients: int) -> None:
        self.statuses: Counter[tuple[str, int]] = Counter()
        self._url = url
        self._stopped = threading.Event()
        for mode in default_modes():
            tasks.get(mode)  # Threads that import one module at the same time may see half of it.
        self._threads = [
            threading.Thread(target=self._send_until_stopped, args=(seed,), daemon=True)
            for seed in range(clients)
        ]

    def __enter__(self) -> MixedLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send_until_stopped(self, seed: int) -> None:
        drawn, count = random.Random(seed), seed
        with httpx.Client(timeout=600, trust_env=False) as client:
            while not self._stopped.is_set():
                count += 1
                verb = "explanations" if count % EXPLAINED_EVERY == 0 else "predictions"
                mode = drawn.choice(default_modes())
                response = client.post(
                    f"{self._url}/{verb}/{mode}", json={"inputs": _inputs(mode, drawn)}
                )
                self.statuses[verb, response.status_code] += 1


def _inputs(mode: str, drawn: random.Random) -> object:
    task = tasks.get(mode)
    longest = LONGEST_PROMPT if task.description.generation.texts else LONGEST
    words = drawn.choices(WORDS, k=drawn.randint(SHORTEST, longest))
    return task.example_inputs(" ".join(words))


def measure(server: Server, *, minutes: float, clients: int, every: float) -> list[Curve]:
    """Return the memory of each worker under a mixed load.

    Args:
        server: a server of the demo models.
        minutes: how long to send requests.
        clients: how many clients send them.
        every: seconds between two samples.
    """
    curves = [Curve(model, pid) for model in sorted(server.models) for pid in _pids(server, model)]
    start = time.monotonic()
    for curve in curves:
        curve.sample(0.0)
    with MixedLoad(server.inference_url, clients) as load:
        while (now := time.monotonic() - start) < 60 * minutes:
            time.sleep(every)
            for curve in curves:
                curve.sample(now)
            if int(now) % 60 < every:
                print(_line(curves, now), flush=True)
    print({f"{verb} {status}": count for (verb, status), count in sorted(load.statuses.items())})
    return curves


def _pids(server: Server, model: str) -> list[int]:
    [version] = server.describe(model)
    return [worker["pid"] for worker in version["workers"]]


def _line(curves: Sequence[Curve], now: float) -> str:
    latest = ", ".join(f"{curve.model} {curve.megabytes[-1]:.0f}" for curve in curves)
    return f"minute {now / 60:4.1f}: {latest} MB"


def main(
    minutes: Annotated[float, typer.Option(help="Duration of the load.")] = 30,
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 12,
    every: Annotated[float, typer.Option(help="Seconds between two samples.")] = 10,
    dtype: Annotated[
        str, typer.Option(help="dtype of the models; that of the YAML if empty.")
    ] = "",
    output: Annotated[Path, typer.Option(help="The file of the result.")] = BUILD / "memory.json",
) -> None:
    """Measure the memory of each worker over time under a mixed load."""
    ensure()
    with TemporaryDirectory(prefix="memory-") as scratch:
        store = Path(scratch) / "model_store"
        store.mkdir()
        for mode in default_modes():
            pack(_config(Path(scratch), mode, dtype), export_path=store, checked=False)
        with TorchServe(model_store=store, workdir=Path(scratch) / "work", timeout=300) as server:
            curves = measure(server, minutes=minutes, clients=clients, every=every)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([vars(curve) for curve in curves]) + "\n", encoding="utf-8")
    for curve in curves:
        start, five, end = curve.megabytes[0], curve.at(300), curve.megabytes[-1]
        print(
            f"{curve.model}: {start:.0f} MB after warm-up, {five:.0f} after 5 minutes,"
            f" {end:.0f} at the end ({end / five:.2f} of minute 5, {end / start:.2f} of warm-up)"
        )


def _config(folder: Path, mode: str, dtype: str) -> Path:
    """Return the YAML of a demo model, with another dtype if one is given."""
    path = MODEL_CONFIGS / f"{mode}.yaml"
    if not dtype:
        return path
    handler = ModelConfig.read(path).handler.dtype
    changed = folder / path.name
    text = path.read_text(encoding="utf-8").replace(f"dtype: {handler}", f"dtype: {dtype}")
    changed.write_text(text, encoding="utf-8")
    return changed


if __name__ == "__main__":
    typer.run(main)
