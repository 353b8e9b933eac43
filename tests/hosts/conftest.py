"""Models that the tests of every host serve."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import hf_serve
from hf_serve.hosts.archives import HANDLERS
from tests.hosts.models import write_configs


@pytest.fixture(scope="session")
def configs(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_configs(tmp_path_factory.mktemp("configs"), checkpoint)


@pytest.fixture(autouse=True)
def same_handlers() -> Iterator[None]:
    """Have this process keep its `handlers` where a test imports those of an archive."""
    before, path, finders = _handlers(), list(sys.path), list(sys.meta_path)
    package = vars(hf_serve).get("handlers")
    yield
    if finders != sys.meta_path:
        for name in _handlers():
            del sys.modules[name]
        sys.modules.update(before)
        sys.path[:], sys.meta_path[:] = path, finders
        vars(hf_serve).pop("handlers", None)
        if package:
            vars(hf_serve)["handlers"] = package


def _handlers() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if f"{name}.".startswith(HANDLERS)}
