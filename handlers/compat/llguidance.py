"""The messages of llguidance, and its compiled module."""

from __future__ import annotations

import re

import llguidance

# Where an error is, and the source that is quoted after it.
PLACE, SOURCE = re.compile(r"^at \d+\(\d+\): "), re.compile(r"\n *\d+ \| ")


def error_reason(message: str) -> str:
    """Return what a message says is wrong, without place and source.

    Breaks when llguidance has other words for a grammar without texts or for its own limits, or
    quotes the source in another form.
    """
    if not message or message.startswith("NoExtension"):
        return "no text matches it"
    if message.startswith("panic"):
        return "it is too complex"
    return SOURCE.split(PLACE.sub("", message), maxsplit=1)[0].removesuffix("<non-verbose/>")


def compiled_module() -> str:
    """Return the file of its compiled module, which a program imports without the package.

    The package imports what it reads its version with, which takes longer than most grammars.

    Breaks when the compiled module is not `llguidance._lib`.
    """
    path: str = llguidance._lib.__file__
    return path
