"""Make the demo models: small checkpoints for the modes, without a model hub."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from hf_serve.demo_models import Made, make_all
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import MODELS
from hf_serve.scripts.serving.openmp import short_spins

INTERRUPTED = 130
out, err = Console(highlight=False), Console(stderr=True, highlight=False, soft_wrap=True)


@plain_errors()
def main(
    modes: Annotated[
        list[str] | None, typer.Argument(help="Modes; default: the most used ones.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Make them again.")] = False,
) -> None:
    """Install or train the demo models into artifacts/models/<mode>/; existing ones are kept."""
    with short_spins():
        try:
            made = make_all(modes or (), force=force, console=err)
        except KeyboardInterrupt:
            err.print("Stopped; finished models stay, run the command again for the others.")
            raise typer.Exit(INTERRUPTED) from None
    out.print(table(made))
    out.print(
        f"In {MODELS.relative_to(ROOT)}/. The scores are on texts that were not trained on, written"
        " by hand, or from a generator with other sentence patterns and words than in training."
        " The perplexity is on new stories with words of training, and on others."
    )


def table(made: list[Made]) -> Table:
    """Return a table of scores on held-out rows and the times that it took to make them."""
    whole, folded = Column("mode", no_wrap=True), Column("score", overflow="fold")
    rows = Table(whole, "held-out rows", folded, Column("time", no_wrap=True), box=None)
    for one in made:
        score = (str(one.score.rows), str(one.score)) if one.score else ("-", "-")
        rows.add_row(one.mode, *score, _time(one))
    return rows


def _time(made: Made) -> str:
    if not made.seconds:
        return "here already"
    if made.included:
        return f"installed in {made.seconds:.0f} s"
    return f"trained in {made.seconds:.0f} s ({made.cpu_seconds:.0f} s CPU)"


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
