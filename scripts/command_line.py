"""What command lines share: their options, and how they end when something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from handlers.errors import KitError

PublicKey = Annotated[
    Path | None, typer.Option(help="Serve only archives that are signed with this key.")
]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error of this kit on stderr, without a traceback, and exit with code 1."""
    try:
        yield
    except KitError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def split_names(values: list[str] | None) -> list[str]:
    """Return the values of an option that may be repeated and may hold commas."""
    return [name.strip() for value in values or [] for name in value.split(",") if name.strip()]
