"""Measure rerankers of this kit in process beside sentence-transformers, and on a GPU vLLM.

Writes results/rerank.json and a section of RESULTS.md. `python -m benchmarks.rerank --only
kit_float32,kit_bfloat16 --model ettin_17m` measures less; `--smoke` is a trial run with tiny
models, whose figures mean nothing. Nothing else should run on the machine. `--library-python` is
the Python of an environment with sentence-transformers 5.4 or later, optimum-intel, datasets, and
vLLM or flash attention where they are measured; what it lacks is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.contenders import rerank_libraries
from benchmarks.generation import known_words
from benchmarks.machine import machine
from benchmarks.page import write_results
from benchmarks.reranking import kit
from benchmarks.reranking.models import LENGTHS, WRITERS, queries, reranker
from benchmarks.reranking.table import reranking_section
from hf_serve.demo_models.minilm import load_tokenizer
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.hosts.command_line import plain_errors
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.scripts.command_line import split_names
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD

WORK = BUILD / "benchmarks" / "rerank"
PYTHON = ROOT / ".venv-rerank" / "bin" / "python"
NAMES = (*kit.SETTINGS, *rerank_libraries.LIBRARIES)
ON_GPU = ("sentence_transformers_flash", "vllm")
# Exports and quantization of bert-base take minutes.
TIMEOUT = 1800

Names = list[str] | None


@plain_errors()
def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each contender.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="Duration of each measurement.")] = 10,
    model: Annotated[Names, typer.Option(help="Models, repeated or comma-separated.")] = None,
    only: Annotated[Names, typer.Option(help="Contenders, repeated or comma-separated.")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Also measure what runs on a GPU.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny models, one round of 1 s.")] = False,
    library_python: Annotated[Path, typer.Option(help="Python of other libraries.")] = PYTHON,
    out: Annotated[Path | None, typer.Option(help="Folder for RESULTS.md and results/.")] = None,
    work: Annotated[Path, typer.Option(help="Folder for models and archives.")] = WORK,
) -> None:
    """Measure the contenders and write the results."""
    silence_libraries()
    models = known_words(split_names(model), list(WRITERS), "model") or list(WRITERS)
    named = known_words(split_names(only), NAMES, "contender")
    chosen = named or [name for name in NAMES if gpu or name not in ON_GPU]
    rounds, seconds = (1, 1) if smoke else (rounds, seconds)
    document: dict[str, Any] = {
        "machine": machine(),
        "rounds": rounds,
        "tiny": smoke,
        "models": {},
    }
    folder = out or (work / "smoke" if smoke else ROOT / "benchmarks")
    for name in models:
        checkpoint = reranker(name, work, smoke=smoke)
        lengths = document["models"].setdefault(name, {})
        for length in LENGTHS:
            asked = queries(load_tokenizer(), length, 1 if smoke else 4, 8 if smoke else 32)
            job = {
                "model": str(checkpoint),
                "work": str(work),
                "seconds": seconds,
                "queries": asked,
            }
            lengths[str(length)] = _measure(chosen, job, rounds, library_python)
            write_results(folder, "rerank.json", document)
    typer.echo(reranking_section(document))
    found = [each for lengths in document["models"].values() for each in lengths.values()]
    if any(each["failure"] for contenders in found for each in contenders.values()):
        raise typer.Exit(1)


def _measure(
    names: Sequence[str], job: Mapping[str, Any], rounds: int, python: Path
) -> dict[str, Any]:
    """Return the pairs/s of each contender in each round, in turn."""
    found: dict[str, Any] = {name: {"pairs_per_second": [], "failure": None} for name in names}
    for _ in range(rounds):
        for name, results in found.items():
            if results["failure"] is None:
                rate, failure = _run(name, job, python)
                results["failure"] = failure
                results["pairs_per_second"] += [rate] if rate else []
                typer.echo(f"{name}: {failure or f'{rate:,.0f} pairs/s'}")
    return found


def _run(name: str, job: Mapping[str, Any], python: Path) -> tuple[float | None, str | None]:
    """Return the pairs/s of a contender, or why there are none."""
    command: list[str | Path] = [sys.executable, "-m", kit.__name__]
    if name in rerank_libraries.LIBRARIES:
        if not python.is_file():
            return None, f"there is no {python}; name a Python with --library-python"
        command = [python, "-P", str(rerank_libraries.__file__)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps({**job, "name": name, "library": name}),
            env={**os.environ, **OFFLINE},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return None, f"it did not end within {TIMEOUT} s"
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["it printed no error"])[-1]
    return float(json.loads(done.stdout.splitlines()[-1])), None


if __name__ == "__main__":
    typer.run(main)
