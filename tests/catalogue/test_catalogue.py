"""Each entry of the catalogue is served, or refused before a download, as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError
from hf_serve.scripts.hub.catalogue import CatalogueEntry, read_catalogue
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.mode_detection import mode_of_hub_task
from hf_serve.scripts.hub.model_check import ModelCheck, check_model
from tests.catalogue.checkpoints import write

ENTRIES = read_catalogue()
SERVED = {name: entry for name, entry in ENTRIES.items() if not entry.refused}
REFUSED = {name: entry for name, entry in ENTRIES.items() if entry.refused}
NO_HUB = Hub("http://127.0.0.1:9")


def _check(entry: CatalogueEntry, folder: Path, mode: str | None = None) -> ModelCheck:
    """Check a copy of a repository under a name that the catalogue does not have."""
    return check_model(str(write(entry, folder / "copy", weights=False)), None, NO_HUB, mode)


@pytest.mark.parametrize("name", SERVED)
def test_the_mode_follows_from_the_files(name: str, tmp_path: Path) -> None:
    found = _check(SERVED[name], tmp_path)
    assert (found.mode.mode, found.refusal) == (SERVED[name].mode, None)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_served_is_refused_before_a_download(name: str, tmp_path: Path) -> None:
    entry = REFUSED[name]
    for mode in {None, mode_of_hub_task(entry.checkpoint.hub_task)}:
        try:
            assert _check(entry, tmp_path / str(mode), mode).refusal
        except KitError as refusal:
            assert str(refusal)


@pytest.mark.parametrize("name", SERVED)
def test_the_keys_of_an_entry_are_those_of_a_yaml(name: str) -> None:
    entry = SERVED[name]
    ModelConfig.parse({"handler": {"mode": entry.mode, **entry.handler}})


def test_ids_and_names_are_unique() -> None:
    models = [model.lower() for entry in ENTRIES.values() for model in entry.models]
    assert len(models) == len(set(models))
    last = [model.rpartition("/")[2] for model in models]
    assert len(last) == len(set(last))
