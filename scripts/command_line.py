"""Options that several commands have; `hosts/command_line.py` has how commands end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import KitError

PublicKey = Annotated[
    Path | None, typer.Option(help="Serve only archives that are signed with this key.")
]


# What keys of a YAML are in commands that name a model without one.
OPTIONS = {"revision": "--revision", "mode": "--mode"}
# The messages themselves name the option of this key.
WITH_OPTION = {"allow_pickle"}
KEY = re.compile(r"\bhandler\.(\w+)")


def in_options(message: str) -> str:
    """Return what a message says of keys of a YAML to a user of a command that has no YAML."""
    message = KEY.sub(lambda found: OPTIONS.get(found[1], found[0]), message)
    others = HandlerSection.model_fields.keys() - WITH_OPTION
    if others.isdisjoint(KEY.findall(message)):
        return message
    return f"{message} A key of `handler` is set in a YAML, which is named in place of the model."


@contextmanager
def errors_in_options() -> Iterator[None]:
    """Raise what a block says of keys of a YAML in the words of :func:`in_options`."""
    try:
        yield
    except KitError as error:
        message = in_options(str(error))
        if message == str(error):
            raise
        raise KitError(message) from None


def split_names(values: list[str] | None) -> list[str]:
    """Return the values of an option that may be repeated and may hold commas."""
    return [name.strip() for value in values or [] for name in value.split(",") if name.strip()]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 worker`, `2 workers`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
