"""Write the generated tables in docs/: the YAML's keys, the request parameters, the formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scripts.kit.docs import PAGES, write

out = Console(highlight=False, soft_wrap=True)


def main(
    folder: Annotated[Path, typer.Option(help="Where the pages are.")] = PAGES,
) -> None:
    """Update the tables between `<!-- generated: … -->` marks and print the pages that changed."""
    for page in write(folder):
        out.print(str(page), markup=False)


if __name__ == "__main__":
    typer.run(main)
