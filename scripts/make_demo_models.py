"""Train the demo models: small checkpoints for the modes, without a model hub."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from scripts.kit.command import plain_errors
from scripts.kit.demo_models import Made, make_all
from scripts.kit.openmp import short_spins
from scripts.kit.places import MODELS, ROOT

INTERRUPTED = 130
out, err = Console(highlight=False), Console(stderr=True, highlight=False, soft_wrap=True)


def main(
    modes: Annotated[
        list[str] | None, typer.Argument(help="Modes; default: the most used ones.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Train them again.")] = False,
) -> None:
    """Train the demo models into artifacts/models/<mode>/; existing ones are kept."""
    with plain_errors(), short_spins():
        try:
            made = make_all(modes or (), force=force, console=err)
        except KeyboardInterrupt:
            err.print("Stopped; finished models stay, run the command again for the others.")
            raise typer.Exit(INTERRUPTED) from None
    out.print(table(made))
    out.print(
        f"In {MODELS.relative_to(ROOT)}/. The scores are on held-out rows: other sentence patterns"
        " and other words than in training, from the same kind of generator."
    )


def table(made: list[Made]) -> Table:
    """Return a table of scores on held-out rows and training times."""
    rows = Table("mode", "held-out rows", Column("score", overflow="fold"), "made in", box=None)
    for one in made:
        score = (str(one.score.rows), str(one.score)) if one.score else ("-", "-")
        times = f"{one.seconds:.0f} s ({one.cpu_seconds:.0f} s CPU)"
        rows.add_row(one.mode, *score, times if one.seconds else "here already")
    return rows


def run() -> None:
    """Start the command line."""
    typer.run(main)


if __name__ == "__main__":
    run()
