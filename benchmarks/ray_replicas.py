"""Load on one replica of Ray Serve and on two: `python -m benchmarks.ray_replicas`.

The model sleeps for each request, so replicas need no cores of their own, and the figures show what
Ray Serve adds, on any machine. It needs the environment .venv-ray and the demo model of
sequence_classification, or the YAML of another model.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import httpx
import typer
import yaml

from benchmarks.sleeping import pack_sleeping
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import MODEL_CONFIGS
from hf_serve.scripts.serving.ports import free_ports

PYTHON = ROOT / ".venv-ray" / "bin" / "python"
SCRIPT = ROOT / "scripts" / "serve_ray.py"
CLIENTS_PER_REPLICA = 4


def main(
    config: Annotated[Path, typer.Option(help="The YAML of the model.")] = (
        MODEL_CONFIGS / "sequence_classification.yaml"
    ),
    seconds: Annotated[float, typer.Option(help="How long each batch sleeps.")] = 0.2,
    requests: Annotated[int, typer.Option(help="Requests to each replica.")] = 100,
) -> None:
    """Print requests per second of one replica and of two."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for replicas in (1, 2):
            _pack(config, folder, replicas, seconds)
        port = free_ports().inference
        place = ["--workdir", str(folder / "server")]
        start = ["start", "--model-store", str(folder / "store"), "--port", str(port)]
        subprocess.run([PYTHON, SCRIPT, *start, "--timeout", "600", *place], check=True)
        try:
            rates = [
                _rate(f"http://127.0.0.1:{port}/predictions/replicas_{count}", count, requests)
                for count in (1, 2)
            ]
        finally:
            subprocess.run([PYTHON, SCRIPT, "stop", *place], check=True)
    print(f"one replica {rates[0]:.2f} requests/s, two {rates[1]:.2f}: {rates[1] / rates[0]:.2f}")


def _pack(config: Path, folder: Path, replicas: int, seconds: float) -> None:
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    document |= {"minWorkers": replicas, "maxWorkers": replicas, "batchSize": 1}
    path = folder / f"replicas_{replicas}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    pack_sleeping(path, folder / "store", folder / f"code_{replicas}", seconds)


def _rate(url: str, replicas: int, requests: int) -> float:
    clients, count = CLIENTS_PER_REPLICA * replicas, requests * replicas
    with (
        httpx.Client(timeout=300, trust_env=False) as client,
        ThreadPoolExecutor(clients) as threads,
    ):
        client.post(url, content=b"A film.")
        start = time.monotonic()
        for response in threads.map(lambda _: client.post(url, content=b"A film."), range(count)):
            response.raise_for_status()
        return count / (time.monotonic() - start)


if __name__ == "__main__":
    typer.run(main)
