"""Measure models of the catalogue at their published size, with random weights.

    python -m benchmarks.catalogue
    python -m benchmarks.catalogue --only bge --only whisper

Each model that is not too large is written with the sizes of its config, packed in float32 and in
int8, and measured as `hf-serve bench` does: rows or new tokens per second, and the memory of a
worker. The rows are the calibration rows of its mode. A tokenizer of the tests makes more tokens of
a text than the published one, so figures compare formats and models of one kind of tokenizer.

What is measured is kept in `benchmarks/results/catalogue.json`, and a run that is broken off goes
on behind it. A model that is measured while other programs run is marked as busy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.machine import machine
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError
from hf_serve.scripts.benchmark.candidates import FLOAT32, Candidate, candidates
from hf_serve.scripts.benchmark.model_source import ModelSource
from hf_serve.scripts.benchmark.session import Measured, Plan, Session
from hf_serve.scripts.hub.catalogue import CatalogueEntry, read_catalogue
from hf_serve.scripts.installation import ROOT
from tests.catalogue.checkpoints import count_parameters, write

RESULTS = ROOT / "benchmarks" / "results" / "catalogue.json"
MILLION = 1_000_000
# Running processes for each core, beyond which figures are too low.
BUSY = 0.5
# Quantizations to eight bits, the first that a mode has.
INT8 = ("int8", "int8_weights")
KEPT = ("rows_per_second", "tokens_per_second", "p50_ms", "private", "shared", "size")

out = Console(highlight=False)


def main(
    only: Annotated[list[str] | None, typer.Option(help="Names of entries.")] = None,
    largest: Annotated[int, typer.Option(help="The most parameters, in millions.")] = 350,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long a format is measured.")] = 3,
    rows: Annotated[int, typer.Option(min=1, help="The most rows.")] = 32,
    again: Annotated[bool, typer.Option("--again", help="Measure what was measured.")] = False,
) -> None:
    """Measure entries, and write `benchmarks/results/catalogue.json`."""
    results = read_results()
    for name, entry in chosen(only):
        if name in results["entries"] and not again:
            continue
        count = count_parameters(entry)
        if count is None or count > largest * MILLION:
            out.print(f"{name}: not measured, {_size(count)}")
            continue
        # Before it: the measurement itself is a load.
        busy = os.getloadavg()[0] > BUSY * (os.cpu_count() or 1)
        with TemporaryDirectory(prefix="catalogue-") as made:
            figures = measure(name, entry, Path(made), Plan(rows, seconds))
        results["machine"] = machine()
        results["entries"][name] = {"parameters": count, "busy": busy, **figures}
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        out.print(f"{name}: {_size(count)}, {figures}")


def read_results(path: Path = RESULTS) -> dict[str, Any]:
    """Return what was measured, by the names of entries."""
    if not path.is_file():
        return {"machine": {}, "entries": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def chosen(only: list[str] | None) -> Iterator[tuple[str, CatalogueEntry]]:
    """Yield served entries, or those of some names."""
    entries = read_catalogue()
    if unknown := {*(only or ())} - entries.keys():
        raise typer.BadParameter(f"there is no entry {min(unknown)}")
    for name, entry in entries.items():
        if not entry.refused and (not only or name in only):
            yield name, entry


def measure(name: str, entry: CatalogueEntry, folder: Path, plan: Plan) -> dict[str, Any]:
    """Measure an entry in float32 and in int8; a format that it does not have has a problem."""
    checkpoint = write(entry, folder / name, real_size=True)
    handler = {"mode": entry.mode, **entry.handler, "model_name": str(checkpoint)}
    config = ModelConfig.parse({"handler": {**handler, "min_agreement": 0}})
    session = Session(ModelSource(name, config), folder / "session", plan)
    return {form: _figures(session, candidate) for form, candidate in candidates_of(config).items()}


def candidates_of(config: ModelConfig) -> Mapping[str, Candidate]:
    """Return the fastest possible format in float32, and one in eight bits."""
    possible = [each for each in candidates(config) if not each.problem]
    exact = [each for each in possible if each.keys.get("dtype") == FLOAT32]
    found = {FLOAT32: next((each for each in exact if each.save_mode == "openvino"), exact[0])}
    for quantization in INT8:
        eight = [each for each in possible if each.keys.get("quantization") == quantization]
        if eight:
            return found | {"int8": eight[0]}
    return found


def _figures(session: Session, candidate: Candidate) -> dict[str, Any]:
    try:
        found = session.measure(candidate)
    except KitError as error:
        found = Measured(candidate, problem=str(error))
    if not found.figures:
        return {"format": candidate.name, "problem": found.problem}
    return {"format": candidate.name, **{key: found.figures[key] for key in KEPT}}


def _size(count: int | None) -> str:
    return f"{count / MILLION:.0f} million parameters" if count else "its size is not known"


if __name__ == "__main__":
    typer.run(main)
