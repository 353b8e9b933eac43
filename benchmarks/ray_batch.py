"""Rows per second of `batch_predict.py` beside the engine: `python -m benchmarks.ray_batch`.

It needs the environment .venv-ray. Two nodes of Ray run on this machine, with an actor on each;
with `--kill`, an actor and then a node end on the way.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from hf_serve.scripts.installation import ROOT

PYTHON = ROOT / ".venv-ray" / "bin" / "python"
SCRIPT = ROOT / "scripts" / "batch_predict.py"
ACTOR = "ray::MapWorker(MapBatches(Scorer))"
WORDS = ("a fine film", "great cast", "the music", "is lovely", "but dull", "sad", "slow", "warm")
IN_PROCESS = """
import json, sys, time
from pathlib import Path
from hf_serve.hosts.archives import import_from, open_archive
archive = open_archive(Path(sys.argv[1]))
import_from(archive.folder)
from hf_serve.hosts.batch_predictor import BatchPredictor
model = BatchPredictor(archive.folder, "cpu", {})
texts = [json.loads(line)["inputs"] for line in open(sys.argv[2])]
model.predict(texts[:1000])
start = time.monotonic()
for first in range(0, len(texts), 1000):
    model.predict(texts[first : first + 1000])
print(len(texts) / (time.monotonic() - start))
"""


def main(
    archive: Annotated[Path, typer.Argument(help="The .mar of a model that takes texts.")],
    rows: Annotated[int, typer.Option(help="Rows of a few words.")] = 100_000,
    kill: Annotated[bool, typer.Option("--kill", help="End an actor and a node.")] = False,
) -> None:
    """Print rows per second in process and with Ray, and how often each row is there."""
    with tempfile.TemporaryDirectory() as scratch:
        source, out = Path(scratch) / "rows.jsonl", Path(scratch) / "out"
        _write(source, rows)
        command = [PYTHON, "-c", IN_PROCESS, archive, source]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        engine = float(done.stdout.split()[-1])
        print(f"engine in process: {engine:.0f} rows/s", flush=True)
        total, scored = _with_ray(archive, source, out, rows, kill=kill)
        found = Counter(
            json.loads(line)["id"]
            for path in out.glob("part-*")
            for line in path.read_text(encoding="utf-8").splitlines()
        )
        once = found == Counter(range(rows))
    print(
        f"Ray: {scored:.0f} rows/s from the first result on ({scored / engine:.2f}), {total:.0f}"
        f" rows/s with the start of the actors ({total / engine:.2f}); each row once: {once}"
    )


def _write(path: Path, rows: int) -> None:
    words = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            text = " ".join(words.choices(WORDS, k=words.randint(2, 7)))
            file.write(json.dumps({"id": number, "inputs": text}) + "\n")


def _with_ray(
    archive: Path, source: Path, out: Path, rows: int, *, kill: bool
) -> tuple[float, float]:
    """Return rows per second with and without the start."""
    nodes = subprocess.Popen(
        [PYTHON, "-m", "benchmarks.ray_nodes"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if not nodes.stdin or not nodes.stdout:
        sys.exit("the nodes have no pipes")
    try:
        cluster = json.loads(next(line for line in nodes.stdout if line.startswith("{")))
        start = time.monotonic()
        options = ["--address", cluster["address"], "--actors", "2", "--cpus", "1"]
        running = subprocess.Popen([PYTHON, SCRIPT, archive, source, out, *options])
        _wait_for(out, 1)
        first = time.monotonic()
        ready = len(list(out.glob("part-*")))
        if kill:
            _wait_for(out, rows // 1000 // 5)
            _actors()[0].kill()
            _wait_for(out, rows // 1000 // 2)
            ended = psutil.Process(cluster["raylet"])
            for process in [*ended.children(recursive=True), ended]:
                process.kill()
        if running.wait(3600):
            sys.exit("batch_predict.py failed")
        end = time.monotonic()
    finally:
        nodes.stdin.close()
        nodes.wait(120)
    return rows / (end - start), (rows - 1000 * ready) / (end - first)


def _wait_for(folder: Path, files: int) -> None:
    while len(list(folder.glob("part-*"))) < files:
        time.sleep(0.05)


def _actors() -> list[Any]:
    children = psutil.Process().children(recursive=True)
    return [each for each in children if "".join(each.cmdline()).startswith(ACTOR)]


if __name__ == "__main__":
    typer.run(main)
