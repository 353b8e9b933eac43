"""Measure the formats of a model on this machine: speed, latency, memory and fidelity."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.config.messages import suggest
from hf_serve.handlers.config.task_aliases import suggest_mode
from hf_serve.handlers.process.resources import available_cores
from hf_serve.hosts.command_line import INTERRUPTED, plain_errors
from hf_serve.scripts.benchmark.report import describe, plot, recommended, table
from hf_serve.scripts.command_line import split_names

if TYPE_CHECKING:
    from hf_serve.scripts.benchmark.candidates import Candidate
    from hf_serve.scripts.benchmark.model_source import ModelSource
    from hf_serve.scripts.benchmark.session import Measured, Session

FOLDER, PLOT = Path("hf-serve") / "bench", "plot.svg"
# Running processes for each core, beyond which figures are too low.
BUSY = 0.5

out, err = Console(highlight=False), Console(stderr=True, highlight=False, soft_wrap=True)


@plain_errors()
def main(
    model: Annotated[
        str, typer.Argument(help="A folder of a checkpoint, a YAML file, or an archive.")
    ],
    mode: Annotated[str | None, typer.Option(help="The mode, where the files fit several.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Values of save_mode, repeated or with commas.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long each format is measured, twice.")
    ] = 5,
    rows: Annotated[int, typer.Option(min=1, help="The most rows of the calibration file.")] = 128,
    folder: Annotated[Path, typer.Option(help="Where figures, plot and log are put.")] = FOLDER,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier run has measured.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure each format that a model can have here, and recommend one.

    The rows come from `handler.calibration`, or from the kit for the mode. A run that is
    interrupted goes on where it was. Nothing else should run on the machine.
    """
    # These imports load torch, which `--help` does not need.
    from hf_serve.scripts.benchmark.model_source import read_source  # noqa: PLC0415
    from hf_serve.scripts.benchmark.session import Plan, Session  # noqa: PLC0415

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if mode and mode not in modes():
        raise typer.BadParameter(f"there is no mode {mode}; {suggest_mode(mode, modes())}")
    source = read_source(model, mode)
    wanted = _wanted(source, split_names(only))
    _warn_if_busy()
    folder = folder / source.name
    session = Session(source, folder, Plan(rows, seconds))
    if fresh:
        session.forget()
    found = _measure(session, wanted)
    (folder / PLOT).write_text(plot(source.name, found), encoding="utf-8")
    if as_json:
        out.print_json(json.dumps([_as_json(each) for each in found]))
    else:
        _show(found, folder / PLOT)
    if len(found) < len(wanted):
        err.print(
            f"Interrupted after {len(found)} of {len(wanted)} formats; the same command goes on"
            " from there.",
            markup=False,
        )
        raise typer.Exit(INTERRUPTED)
    if not recommended(found):
        raise typer.Exit(1)


def _wanted(source: ModelSource, save_modes: Sequence[str]) -> list[Candidate]:
    """Return the formats to measure.

    Raises:
        BadParameter: a word of `--only` is no format.
    """
    # This import loads torch, which `--help` does not need.
    from hf_serve.scripts.benchmark.candidates import candidates, packed_candidate  # noqa: PLC0415

    if source.packed:
        err.print(
            f"The archive of {source.name} has no weights of the checkpoint, so its own format is"
            " measured alone; name the YAML or the checkpoint to compare formats.",
            markup=False,
        )
        return [packed_candidate(source.config)]
    every = candidates(source.config)
    known = list(dict.fromkeys(each.save_mode for each in every))
    for word in save_modes:
        if word not in known:
            raise typer.BadParameter(f"there is no format {word}; {suggest(word, known)}")
    return [each for each in every if not save_modes or each.save_mode in save_modes]


def _measure(session: Session, wanted: Sequence[Candidate]) -> list[Measured]:
    """Measure formats with a progress bar, until Ctrl-C."""
    found: list[Measured] = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        Progress(
            *columns, TimeElapsedColumn(), console=err, transient=True, disable=not err.is_terminal
        ) as progress,
        suppress(KeyboardInterrupt),
    ):
        task = progress.add_task("", total=len(wanted))
        for each in wanted:
            progress.update(task, description=each.name, advance=1 if found else 0)
            found.append(session.measure(each))
            if not err.is_terminal:
                err.print(_line(found[-1]), markup=False)
    return found


def _line(measured: Measured) -> str:
    if not measured.figures:
        return f"{measured.candidate.name}: {measured.problem}"
    return f"{measured.candidate.name}: {measured.figures['rows_per_second']:.4g} rows/s"


def _show(found: Sequence[Measured], drawn: Path) -> None:
    out.print(table(found))
    for each in found:
        if each.problem:
            sentence = f"{each.candidate.name} is not measured: {each.problem}"
            out.print(sentence, markup=False, soft_wrap=True)
    if best := recommended(found):
        sentence = f"The plot is in {drawn}. {describe(best, found)}"
        out.print(f"\n{sentence}\n", markup=False, soft_wrap=True)
        out.print(best.candidate.yaml, markup=False)


def _as_json(measured: Measured) -> dict[str, Any]:
    return {
        "format": measured.candidate.name,
        "keys": dict(measured.candidate.keys),
        "figures": measured.figures,
        "problem": measured.problem,
    }


def _warn_if_busy() -> None:
    load, cores = os.getloadavg()[0], available_cores()
    if load > BUSY * cores:
        err.print(
            f"Other programs run on this machine (load {load:.1f} on {cores} cores), so the figures"
            " are too low; compare them only with each other.",
            markup=False,
        )


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
