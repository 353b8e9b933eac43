"""Write build/openapi/<mode>.json: what can be asked of each mode's models, as OpenAPI 3.1."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.openapi import DOCUMENTS, write

out = Console(highlight=False, soft_wrap=True)


@plain_errors()
def main(
    folder: Annotated[Path, typer.Option(help="Where they are put.")] = DOCUMENTS,
) -> None:
    """Write an OpenAPI document for each mode, from the types of its task."""
    for path in write(folder):
        out.print(str(path), markup=False)


run = partial(typer.run, main)

if __name__ == "__main__":
    run()
