from __future__ import annotations

from pathlib import Path

import pytest

from tests.standins.archives import write_handlers, write_weightless, write_yaml


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """A handlers package whose handler loads any model."""
    return write_handlers(tmp_path / "package" / "handlers")


@pytest.fixture
def weightless(tmp_path: Path) -> Path:
    """A checkpoint folder with placeholder files."""
    return write_weightless(tmp_path / "weightless")


@pytest.fixture
def config_path(tmp_path: Path, weightless: Path) -> Path:
    """The YAML file of the checkpoint."""
    return write_yaml(tmp_path / "qa.yaml", weightless)
