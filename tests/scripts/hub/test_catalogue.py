"""The catalogue: published checkpoints by the names that people use for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_serve.handlers.errors import WrongConfig
from hf_serve.scripts.hub.catalogue import find_in_catalogue, read_catalogue
from tests.sentences import refused

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize("name", ["all-minilm", "ALL-MiniLM-L6-v2", MINILM])
def test_a_model_is_found_by_each_of_its_names(name: str) -> None:
    found = find_in_catalogue(name)
    assert found is not None
    assert (found.model, found.entry.mode) == (MINILM, "sentence_embedding")


def test_another_model_of_an_entry_is_found_by_its_id() -> None:
    found = find_in_catalogue("all-MiniLM-L12-v2")
    assert found is not None
    assert found.model == "sentence-transformers/all-MiniLM-L12-v2"


def test_an_unknown_name_is_not_found() -> None:
    assert find_in_catalogue("org/all-minilm") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [("models: [", "is not YAML"), ("models: []", "models"), ("mode: x", "models is missing")],
)
def test_a_file_that_is_no_entry_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(text, encoding="utf-8")
    with refused(WrongConfig, "wrong.yaml", reason):
        read_catalogue(tmp_path)
