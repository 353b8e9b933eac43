"""Measure this kit over HTTP against other servers, alternating between them for several rounds.

Writes results/serving.json, RESULTS.md and two plots. `python benchmarks/bench.py --only
kit,reference` measures some of the servers; `--quick` is a trial run with a tiny model, whose
figures mean nothing. Nothing else should run on the machine.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import plot
from benchmarks.entry import MODES, check_names, known_names
from benchmarks.load import require_wrk
from benchmarks.machine import gemm_peaks, machine
from benchmarks.measurement import Plan
from benchmarks.page import write_page
from benchmarks.session import Session
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.command_line import split_names
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD

WORK = BUILD / "benchmarks"
BASE, TINY = "bert-base's architecture, untrained", "a tiny BERT: these figures mean nothing"

Names = list[str] | None


@plain_errors()
def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each contender.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="Duration of each load.")] = 8,
    warm: Annotated[float, typer.Option(min=1, help="Duration of the warm-up.")] = 2,
    clients: Annotated[str, typer.Option(help="Numbers of clients, comma-separated.")] = "1,8,32",
    rows: Annotated[int, typer.Option(min=1, help="Number of texts to send, in rotation.")] = 256,
    modes: Annotated[Names, typer.Option(help="Modes, repeated or comma-separated.")] = None,
    only: Annotated[Names, typer.Option(help="Contenders, repeated or comma-separated.")] = None,
    include_all: Annotated[
        bool, typer.Option("--all", help="Also MLServer; see CONTRIBUTING.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny model, one round of 1 s.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for RESULTS.md and results/.")] = None,
    work: Annotated[Path, typer.Option(help="Folder for models, archives and logs.")] = WORK,
) -> None:
    """Measure the contenders and write the results."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    silence_libraries()
    require_wrk()
    chosen = _known_modes(split_names(modes)) or list(MODES)
    plan = Plan(_numbers(clients), 1 if quick else seconds, 1 if quick else warm)
    named, rounds = split_names(only), 1 if quick else rounds
    check_names(named, chosen)
    selected = sorted(known_names(chosen)) if include_all and not named else named
    facts = machine()
    peaks = gemm_peaks(0.1 if quick else 1.0)
    session = Session(work, plan, rounds, rows, selected, quick, peaks, typer.echo)
    document: dict[str, Any] = {
        "model": TINY if quick else BASE,
        "machine": {**facts, "gemm_tflops": peaks},
        "plan": {**asdict(plan), "rounds": rounds, "rows": rows},
        "modes": {},
    }
    folder = out or (work / "quick" if quick else ROOT / "benchmarks")
    for mode in chosen:
        document["modes"][mode] = session.measure(mode)
        write(document, folder)
    typer.echo((folder / "RESULTS.md").read_text(encoding="utf-8"))
    _exit_if_failed(document)


def write(document: dict[str, Any], folder: Path) -> None:
    """Write serving.json, and RESULTS.md and the plots generated from it."""
    results = folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    path = results / "serving.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    read = json.loads(path.read_text(encoding="utf-8"))
    write_page(folder)
    (results / "serving.svg").write_text(plot.bars(read), encoding="utf-8")
    for found in read["modes"].values():
        if lines := found["scaling"]:
            (results / "scaling.svg").write_text(plot.curve(lines), encoding="utf-8")


def _known_modes(words: list[str]) -> list[str]:
    for word in words:
        if word not in MODES:
            raise typer.BadParameter(
                f"{word!r} is not a benchmarked mode; choose from {', '.join(MODES)}."
            )
    return words


def _numbers(words: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words.split(","))
    except ValueError:
        raise typer.BadParameter(f"clients is {words!r}; use numbers, as in 1,8,32.") from None


def _exit_if_failed(document: dict[str, Any]) -> None:
    contenders = [
        each for mode in document["modes"].values() for each in mode["contenders"].values()
    ]
    if any(each["failure"] for each in contenders):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
