"""`list_catalogue.py`: published checkpoints by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hf_serve.scripts import list_catalogue


def test_entries_are_found_by_words(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    list_catalogue.main(["minilm", "sentence_embedding"])
    found = capsys.readouterr().out
    assert "sentence-transformers/all-MiniLM-L6-v2" in found
    assert "jina" not in found


def test_what_is_not_served_has_its_reason(capsys: Any) -> None:
    list_catalogue.main(["jina-embeddings-v3"], as_json=True)
    (entry,) = json.loads(capsys.readouterr().out).values()
    assert entry["refused"].startswith("Its own code")
