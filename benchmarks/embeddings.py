"""Measure sentence embeddings of this kit over HTTP beside infinity and sentence-transformers.

Writes results/embeddings.json and a section of RESULTS.md. `python -m benchmarks.embeddings --only
kit,infinity --model minilm` measures less; `--smoke` is a trial run with a tiny model, whose
figures mean nothing. Nothing else should run on the machine.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.embedding.models import MODELS
from benchmarks.embedding.session import NAMES, Session
from benchmarks.embedding.table import embeddings_section
from benchmarks.generation import known_words
from benchmarks.load import require_wrk
from benchmarks.machine import machine
from benchmarks.measurement import Plan
from benchmarks.page import write_results
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.command_line import split_names
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD

WORK = BUILD / "benchmarks" / "embeddings"
CLIENTS = (1, 32)
# Java compiles TorchServe's methods in the first 15,000 requests, on the cores of the model.
WARM = 30

Names = list[str] | None


@plain_errors()
def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each contender.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="Duration of each load.")] = 8,
    warm: Annotated[float, typer.Option(min=1, help="Duration of the warm-up.")] = WARM,
    model: Annotated[Names, typer.Option(help="Models, repeated or comma-separated.")] = None,
    only: Annotated[Names, typer.Option(help="Contenders, repeated or comma-separated.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="A tiny model, one round of 1 s.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for RESULTS.md and results/.")] = None,
    work: Annotated[Path, typer.Option(help="Folder for models, archives and logs.")] = WORK,
) -> None:
    """Measure the contenders and write the results."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    silence_libraries()
    models = known_words(split_names(model), list(MODELS), "model") or list(MODELS)
    named = known_words(split_names(only), NAMES, "contender")
    require_wrk()
    plan = Plan(CLIENTS, 1 if smoke else seconds, 1 if smoke else warm)
    rounds = 1 if smoke else rounds
    session = Session(work, plan, rounds, named, smoke, typer.echo)
    folder = out or (work / "smoke" if smoke else ROOT / "benchmarks")
    document: dict[str, Any] = {
        "machine": machine(),
        "rounds": rounds,
        "tiny": smoke,
        "models": {},
    }
    for each in models:
        # As it is read again: the numbers of clients are keys.
        document["models"][each] = json.loads(json.dumps(session.measure(each)))
        write_results(folder, "embeddings.json", document)
    typer.echo(embeddings_section(document))
    _exit_if_failed(document)


def _exit_if_failed(document: dict[str, Any]) -> None:
    for found in document["models"].values():
        measured = [*found["contenders"].values(), *found["libraries"].values()]
        if any(each["failure"] for each in measured):
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
