"""Options that several commands have; `hosts/command_line.py` has how commands end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PublicKey = Annotated[
    Path | None, typer.Option(help="Serve only archives that are signed with this key.")
]


def split_names(values: list[str] | None) -> list[str]:
    """Return the values of an option that may be repeated and may hold commas."""
    return [name.strip() for value in values or [] for name in value.split(",") if name.strip()]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 worker`, `2 workers`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
