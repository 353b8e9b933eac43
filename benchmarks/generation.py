"""Measure text generation of this kit over HTTP beside other engines, in turn for several rounds.

Writes results/generation.json and a section of RESULTS.md. `python -m benchmarks.generation --only
kit,vllm --model qwen2` measures less; `--smoke` is a trial run with tiny models and few requests,
whose figures mean nothing. Nothing else should run on the machine.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.machine import machine
from benchmarks.page import write_results
from benchmarks.text_generation.contender import Plan
from benchmarks.text_generation.models import MODELS
from benchmarks.text_generation.session import NAMES, Session
from benchmarks.text_generation.table import generation_section
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.command_line import split_names
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD, MODEL_CONFIGS

YAML = MODEL_CONFIGS / "text_generation.yaml"
WORK = BUILD / "benchmarks" / "generation"
SMOKE = Plan(clients=4, requests=8, seconds=5, repeats=3, hang_ups=8, warm=1)

Names = list[str] | None


@plain_errors()
def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each contender.")] = 3,
    requests: Annotated[int, typer.Option(min=1, help="Requests of each setting.")] = 128,
    clients: Annotated[int, typer.Option(min=2, help="Requests at the same time.")] = 32,
    seconds: Annotated[
        float, typer.Option(min=1, help="When `generate` of transformers stops.")
    ] = 60,
    model: Annotated[Names, typer.Option(help="Models, repeated or comma-separated.")] = None,
    only: Annotated[Names, typer.Option(help="Contenders, repeated or comma-separated.")] = None,
    yaml: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="The YAML file of this kit's model.")
    ] = YAML,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny models, one round of 8 requests.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for RESULTS.md and results/.")] = None,
    work: Annotated[Path, typer.Option(help="Folder for models, archives and logs.")] = WORK,
) -> None:
    """Measure the contenders and write the results."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    silence_libraries()
    models = known_words(split_names(model), MODELS, "model") or MODELS
    named = known_words(split_names(only), NAMES, "contender")
    plan = SMOKE if smoke else Plan(clients, requests, seconds)
    session = Session(work, plan, 1 if smoke else rounds, named, yaml, smoke, typer.echo)
    document: dict[str, Any] = {
        "machine": machine(),
        "plan": asdict(plan),
        "rounds": session.rounds,
        "yaml": yaml.name,
        "tiny": smoke,
        "models": {},
    }
    folder = out or (work / "smoke" if smoke else ROOT / "benchmarks")
    for each in models:
        document["models"][each] = session.measure(each)
        write_results(folder, "generation.json", document)
    typer.echo(generation_section(document))
    _exit_if_failed(document)


def known_words(words: list[str], known: Sequence[str], kind: str) -> list[str]:
    """Return the words of an option.

    Raises:
        BadParameter: one of them is unknown.
    """
    for word in words:
        if word not in known:
            raise typer.BadParameter(f"{word!r} is not a {kind}; choose from {', '.join(known)}.")
    return words


def _exit_if_failed(document: dict[str, Any]) -> None:
    contenders = [
        each for model in document["models"].values() for each in model["contenders"].values()
    ]
    if any(each["failure"] for each in contenders):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
