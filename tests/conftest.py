from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from handlers.quiet import quieten
from tests import tiny
from tests.serving import Served


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    """Keep progress bars out of the report, as the worker keeps them out of its log."""
    quieten()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A tiny checkpoint: `checkpoint(mode, family="Roberta")`; do not write into it."""

    @cache
    def write(mode: str, **config: Any) -> Path:
        return tiny.write(tmp_path_factory.mktemp(mode), mode, **config)

    return write


@pytest.fixture(scope="session")
def served(checkpoint: Callable[..., Path]) -> Callable[..., Served]:
    """A tiny model that can be asked: `served(mode, max_length=16)`; `family` is the model's."""

    @cache
    def load(mode: str, *, family: str = "Bert", **handler: Any) -> Served:
        return Served(checkpoint(mode, family=family), mode, **handler)

    return load
