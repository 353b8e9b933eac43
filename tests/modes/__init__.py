"""The test cases of each mode: one module for each, with one `CASES`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import pytest

from hf_serve.handlers.config.handler_section import modes
from tests.modes._cases import ModeCases

# One mode for each kind of rows and answers. A layer that knows a model by its description alone
# (tests/test_architecture.py checks it of the wire formats) is tested with these.
REPRESENTATIVES = {
    "text": "sequence_classification",
    "pair": "sentence_ranking",  # several named columns; one request has several rows
    "windows": "question_answering",  # a long text has several rows, whose outputs are merged
    "media": "image_classification",  # inputs are files, rows are arrays
    "text generation": "text_generation",  # streams, stops, texts and chats
    "image generation": "text_to_image",  # answers are files; it draws random numbers
}


def cases(mode: str) -> ModeCases:
    """Return the `CASES` of `tests/modes/<mode>.py`."""
    found: ModeCases = import_module(f"tests.modes.{mode}").CASES
    return found


def representatives(names: Iterable[str] | None = None) -> list[str]:
    """Return the modes that represent the others, of all or of those given."""
    chosen = modes() if names is None else names
    return [mode for mode in chosen if mode in REPRESENTATIVES.values()]


def each_mode(names: Iterable[str] | None = None, *, also: Iterable[str] = ()) -> list[Any]:
    """Return modes as a test's parameter, for a layer that does not depend on the mode.

    The tests of modes that are not representatives are nightly.

    Args:
        names: the modes; all by default.
        also: further representatives, of a kind that only this layer tells apart.
    """
    chosen = modes() if names is None else names
    few = {*representatives(), *also}
    return [pytest.param(mode, marks=() if mode in few else pytest.mark.nightly) for mode in chosen]
