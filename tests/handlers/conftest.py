from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of this process and of all workers of its model."""
    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
