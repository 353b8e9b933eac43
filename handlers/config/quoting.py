"""Values of requests and files in error sentences: always short, whatever was sent."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from itertools import islice
from reprlib import Repr
from typing import Any

WIDTH = 60
MAX_NAMES = 12
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = WIDTH - 20


def shorten(text: str, width: int = WIDTH) -> str:
    """Return a text, cut to a number of characters where it is longer."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def quote(value: Any) -> str:
    """Return a value as Python writes it, abbreviated where that is long."""
    try:
        return shorten(_SHORT.repr(value))
    except ValueError:  # Python refuses to write numbers of thousands of digits
        return "a number of too many digits"


def enumerate_names(
    names: Iterable[str], separator: str = ", ", limit: int = MAX_NAMES, width: int = WIDTH
) -> str:
    """Return the first names of a collection, each shortened, and how many others there are."""
    remaining = iter(names)
    shown = [shorten(name, width) for name in islice(remaining, limit)]
    others = len(names) - len(shown) if isinstance(names, Sized) else sum(1 for _ in remaining)
    return separator.join([*shown, f"and {others:,} more"] if others else shown)
