"""List the catalogue: published checkpoints by name, with what serves them."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.hub.catalogue import CatalogueEntry, read_catalogue

out = Console(highlight=False)


@plain_errors()
def main(
    words: Annotated[
        list[str] | None, typer.Argument(help="Words of a name, an id, a mode or a need.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models that `hf-serve run NAME` knows, or those that have all of some words."""
    found = {
        name: entry
        for name, entry in read_catalogue().items()
        if all(word.lower() in _text(name, entry) for word in words or ())
    }
    if as_json:
        out.print_json(json.dumps({name: entry.model_dump() for name, entry in found.items()}))
    else:
        out.print(table(found))


def table(entries: dict[str, CatalogueEntry]) -> Table:
    """Return entries as a table."""
    made = Table("name", "mode", box=None)
    made.add_column("models", overflow="fold")
    made.add_column("needs", overflow="fold")
    for name, entry in entries.items():
        needs = f"not served: {entry.refused}" if entry.refused else entry.needs
        made.add_row(name, entry.mode or "–", "\n".join(entry.models), needs)
    return made


def _text(name: str, entry: CatalogueEntry) -> str:
    return " ".join([name, *entry.models, entry.mode or "", entry.needs]).lower()


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
