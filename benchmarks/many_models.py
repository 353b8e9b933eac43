"""Measure many small models on one machine: cold requests, memory, and requests that are lost.

`python -m benchmarks.many_models` makes 100 archives of MiniLM's shape with random weights, serves
them on demand, and asks a few models often and each of the others once meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Annotated

import httpx
import psutil
import torch
import typer
import yaml
from transformers import BertConfig, BertModel

from benchmarks.embedding.models import MODE
from benchmarks.models import TINY
from hf_serve.demo_models.minilm import load_tokenizer
from hf_serve.handlers.checkpoints.archive_signature import SUMS, digests, read_sums
from hf_serve.hosts.archives import MANIFEST, open_archive
from hf_serve.hosts.fork_server.messages import MODEL_SCRIPT
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD
from hf_serve.scripts.serving.ports import free_ports
from hf_serve.scripts.serving.processes import Memory

MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
WEIGHTS = re.compile(r"^[0-9a-f]+-[0-9a-f]+ .*\.safetensors\n(?P<fields>(?:\w+: .*\n)+)", re.M)
PRIVATE = re.compile(r"^Private_\w+: +(\d+) kB", re.M)
BODY = {"inputs": "The breakfast was wonderful and the staff made us feel at home."}
START_SECONDS = 120.0
MIB = 1 << 20


def write_archives(folder: Path, count: int, shape: dict[str, int]) -> Path:
    """Write unpacked archives that differ in their names, with links to one file of weights."""
    checkpoint, store = folder / "checkpoint", folder / "models"
    torch.manual_seed(0)
    load_tokenizer().save_pretrained(checkpoint)
    BertModel(BertConfig(**shape)).save_pretrained(checkpoint)
    config = folder / "model.yaml"
    handler = {"mode": MODE, "model_name": str(checkpoint), "dtype": "float32"}
    config.write_text(yaml.safe_dump({"handler": handler}), encoding="utf-8")
    source = open_archive(pack(config, export_path=folder).path).folder
    for number in range(count):
        target = shutil.copytree(source, store / name_of(number), copy_function=_link_weights)
        manifest = json.loads((target / MANIFEST).read_text("utf-8"))
        manifest["model"]["modelName"] = name_of(number)
        (target / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        sums = read_sums((target / SUMS).read_bytes())
        if str(MANIFEST) in sums:
            sums |= digests({str(MANIFEST): target / MANIFEST})
        (target / SUMS).write_text("".join(f"{sum_}  {each}\n" for each, sum_ in sums.items()))
    return store


def _link_weights(source: str, target: str) -> None:
    """Link a file of weights, and copy another file."""
    if source.endswith(".safetensors"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def name_of(number: int) -> str:
    """Return the name of a model."""
    return f"model{number:03}"


@contextmanager
def serving(store: Path, log: Path, options: Sequence[str]) -> Iterator[tuple[str, psutil.Process]]:
    """Serve the models, and yield the URL and the process of the server."""
    port = free_ports().inference
    command = [sys.executable, "-m", "hf_serve.hosts.asgi", str(store), "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, *options], cwd=ROOT, stdout=file, stderr=file)
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + START_SECONDS
    try:
        while not _is_live(url):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"The server does not start; {log} says why.")
            time.sleep(0.1)
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _is_live(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v2/health/live", trust_env=False).is_success
    except httpx.TransportError:
        return False


class Client:
    """Counts statuses, and times requests."""

    def __init__(self, url: str) -> None:
        self.statuses = Counter[int]()
        self._client = httpx.Client(base_url=url, timeout=300, trust_env=False)

    def ask(self, number: int) -> float:
        """Ask a model, and return the seconds until its answer."""
        started = time.monotonic()
        response = self._client.post(f"/predictions/{name_of(number)}", json=BODY)
        self.statuses[response.status_code] += 1
        return time.monotonic() - started


def measure_load(
    client: Client, used: int, models: int, pause: float
) -> tuple[list[float], list[float]]:
    """Ask the models in use all the time, and each other model once.

    Args:
        pause: seconds between two requests to the models in use.

    Returns:
        The seconds of the requests to models in use, and of the cold requests.
    """
    ended, warm = threading.Event(), list[float]()

    def ask_used() -> None:
        drawn = random.Random(0)
        while not ended.is_set():
            warm.append(client.ask(drawn.randrange(used)))
            time.sleep(pause)

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask_used)
        cold = [client.ask(number) for number in range(used, models)]
        ended.set()
        asking.result()
    return warm, cold


def memory_of(server: psutil.Process) -> dict[str, float]:
    """Return the memory of a server and its processes in MiB."""
    below = server.children(recursive=True)
    models = [each for each in below if MODEL_SCRIPT in each.cmdline()[1]]
    private = [(Memory.of(each.pid).private - _private_weights(each.pid)) / MIB for each in models]
    total = sum(each.memory_full_info().pss for each in [server, *below])
    return {
        "processes": len(models),
        "private_of_a_process": round(median(private), 1) if private else 0.0,
        "all": round(total / MIB, 1),
    }


def _private_weights(pid: int) -> int:
    """Return the bytes of weights that only one process maps now."""
    fields = (found["fields"] for found in WEIGHTS.finditer(Path(f"/proc/{pid}/smaps").read_text()))
    return sum(int(size) * 1024 for each in fields for size in PRIVATE.findall(each))


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    parts = quantiles(seconds, n=100) if len(seconds) > 1 else [*seconds] * 99
    named = {"p50": parts[49], "p99": parts[98], "max": max(seconds)}
    return {name: round(value, 3) for name, value in named.items()} | {"requests": len(seconds)}


def main(
    models: Annotated[int, typer.Option(help="How many models there are.")] = 100,
    used: Annotated[int, typer.Option(help="How many of them are asked all the time.")] = 20,
    memory: Annotated[float, typer.Option(help="GiB of all models.")] = 8.0,
    pause: Annotated[float, typer.Option(help="Seconds between requests to models in use.")] = 0.05,
    tiny: Annotated[bool, typer.Option("--tiny", help="Tiny models, for a trial run.")] = False,
    output: Annotated[Path, typer.Option(help="The file of the result.")] = BUILD / "many.json",
) -> None:
    """Measure cold requests, memory, and requests that are lost."""
    with TemporaryDirectory(prefix="many-") as scratch:
        shape = dict(TINY) if tiny else MINILM
        store = write_archives(Path(scratch), models, shape)
        options = ["--models-memory", str(memory)]
        with serving(store, Path(scratch) / "server.log", options) as (url, server):
            client = Client(url)
            first = client.ask(0)  # The fork server imports the packages meanwhile.
            alone = [client.ask(number) for number in range(1, used)]
            with_used = memory_of(server)
            warm, cold = measure_load(client, used, models, pause)
            result = {
                "load": list(psutil.getloadavg()),
                "first_request": round(first, 3),
                "cold_alone": _summary(alone),
                "cold_under_load": _summary(cold),
                "warm_under_load": _summary(warm),
                "memory_with_used": with_used,
                "memory_at_the_end": memory_of(server),
                "statuses": dict(client.statuses),
            }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    typer.run(main)
