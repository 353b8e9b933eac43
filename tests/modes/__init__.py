"""The test cases of each mode: one module for each, with one `CASES`."""

from __future__ import annotations

from importlib import import_module

from tests.modes._cases import ModeCases


def cases(mode: str) -> ModeCases:
    """Return the `CASES` of `tests/modes/<mode>.py`."""
    found: ModeCases = import_module(f"tests.modes.{mode}").CASES
    return found
