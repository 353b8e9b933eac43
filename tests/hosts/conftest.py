"""Models that the tests of every host serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.models import write_configs


@pytest.fixture(scope="session")
def configs(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_configs(tmp_path_factory.mktemp("configs"), checkpoint)
