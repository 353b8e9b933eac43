"""A YAML of four lines beside the one that is shipped: `python -m benchmarks.four_lines`.

For each mode, both are packed with the same checkpoint and served by one TorchServe. 32 clients ask
one and then the other, in turn. Where a request is a text, a short one is also timed beside 31
clients with texts that are up to eight times as long. A checkpoint is the demo's if it was made,
and otherwise a tiny one, where what a request costs outside of the model is all that is measured.
Nothing else should run on the machine.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import httpx
import typer
import yaml

from benchmarks.load import load, warm_up
from benchmarks.machine import machine
from hf_serve.handlers.config.handler_section import modes as all_modes
from hf_serve.handlers.errors import KitError
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.demo import sample
from hf_serve.scripts.paths import BUILD, MODELS, config_path_of
from hf_serve.scripts.serving.torchserve import TorchServe
from tests import tiny

SHIPPED, FOUR = "shipped", "four_lines"
JSON = "application/json"
CLIENTS = 32
# How many times the words of a short text a long one has: the first that the model takes.
LONGER = (8, 4, 2)


@dataclass
class Found:
    """What was measured of a mode.

    Attributes:
        rows_per_second: of each round, by YAML.
        short_ms: the median of a short request beside long ones in each round, by YAML; empty where
            requests are no texts.
        errors: failed requests.
    """

    rows_per_second: dict[str, list[float]]
    short_ms: dict[str, list[float]]
    errors: int = 0

    @property
    def throughput(self) -> float:
        """The rows/s of four lines, as a share of the shipped ones."""
        return _ratio(self.rows_per_second)

    @property
    def short(self) -> float | None:
        """The time of a short request with four lines over the shipped one."""
        return _ratio(self.short_ms) if self.short_ms[FOUR] else None


def _ratio(rounds: dict[str, list[float]]) -> float:
    return median(four / own for four, own in zip(rounds[FOUR], rounds[SHIPPED], strict=True))


def main(
    mode: Annotated[list[str] | None, typer.Option(help="Modes, repeated.")] = None,
    rounds: int = 3,
    seconds: float = 4.0,
    out: Path = BUILD / "four_lines.json",
) -> None:
    """Measure the modes, and write the results."""
    document: dict[str, Any] = {"machine": machine(), "modes": {}}
    for each in mode or all_modes():
        try:
            found = measure(each, rounds, seconds)
        except KitError as error:
            print(f"{each}: {error}", flush=True)
            continue
        short = f", short requests {found.short:.2f} of their time" if found.short else ""
        print(
            f"{each}: {found.throughput:.3f} of the rows/s{short}, {found.errors} errors",
            flush=True,
        )
        document["modes"][each] = asdict(found)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def measure(mode: str, rounds: int, seconds: float) -> Found:
    """Measure one mode."""
    names = (SHIPPED, FOUR)
    with TemporaryDirectory(prefix="four-lines-") as scratch:
        store = Path(scratch) / "store"
        checkpoint = MODELS / mode if (MODELS / mode).is_dir() else _tiny(Path(scratch), mode)
        for name in names:
            path = Path(scratch) / f"{name}.yaml"
            path.write_text(yaml.safe_dump(_yaml(mode, name, checkpoint)), encoding="utf-8")
            pack(path, export_path=store)
        served = TorchServe(Path(scratch) / "server", model_store=store)
        with served as server:
            urls = {name: f"{server.inference_url}/predictions/{name}" for name in names}
            return _measure(urls, sample(mode), rounds, seconds)


def _tiny(scratch: Path, mode: str) -> Path:
    (scratch / "checkpoint").mkdir()
    return tiny.write(scratch / "checkpoint", mode)


def _yaml(mode: str, name: str, checkpoint: Path) -> dict[str, Any]:
    four = {"mode": mode, "model_name": str(checkpoint), "save_mode": "auto", "dtype": "auto"}
    if name == FOUR:
        return {"handler": four}
    document: dict[str, Any] = yaml.safe_load(config_path_of(mode).read_text(encoding="utf-8"))
    document["handler"].pop("revision", None)
    document["handler"]["model_name"] = str(checkpoint)
    return document


def _measure(urls: dict[str, str], body: dict[str, Any], rounds: int, seconds: float) -> Found:
    found = Found({name: [] for name in urls}, {name: [] for name in urls})
    for url in urls.values():
        warm_up(url, [json.dumps(body)], JSON, clients=CLIENTS, seconds=2)
    long = _long(urls[SHIPPED], body) if _is_text(body["inputs"]) else None
    for number in range(rounds):
        # Each comes first in half of the rounds, as the machine changes with time.
        for name, url in list(urls.items())[:: 1 if number % 2 else -1]:
            done = load(url, [json.dumps(body)], JSON, clients=CLIENTS, seconds=seconds)
            found.rows_per_second[name].append(done.rows_per_second)
            found.errors += done.errors
            if long:
                found.short_ms[name].append(_short_beside(url, body, long, seconds))
    return found


def _long(url: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """Return a request whose text is several times as long; None if the model takes none."""
    text = body["inputs"]
    words = " ".join(word for word in text.split() if "[MASK]" not in word)
    for times in LONGER:
        long = {**body, "inputs": " ".join([text, *[words] * (times - 1)])}
        if httpx.post(url, json=long, timeout=60, trust_env=False).is_success:
            return long
    return None


def _is_text(inputs: object) -> bool:
    return isinstance(inputs, str) and " " in inputs


def _short_beside(url: str, short: dict[str, Any], long: dict[str, Any], seconds: float) -> float:
    """Return the median milliseconds of a short request beside long ones."""
    times = list[float]()
    with httpx.Client(timeout=60, trust_env=False) as client, ThreadPoolExecutor(1) as threads:
        beside = threads.submit(
            load, url, [json.dumps(long)], JSON, clients=CLIENTS - 1, seconds=seconds
        )
        time.sleep(seconds / 4)
        while not beside.done():
            started = time.perf_counter()
            client.post(url, json=short).raise_for_status()
            times.append(1000 * (time.perf_counter() - started))
        beside.result()
    return median(times)


if __name__ == "__main__":
    typer.run(main)
