"""`list_catalogue.py`: published checkpoints by name."""

from __future__ import annotations

import json
from typing import Any

from hf_serve.scripts import list_catalogue


def test_entries_are_found_by_words(capsys: Any) -> None:
    list_catalogue.main(["minilm", "sentence_embedding"], as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert "sentence-transformers/all-MiniLM-L6-v2" in found["all-minilm"]["models"]
    assert not {"ms-marco-minilm", "bge"} & found.keys()


def test_a_table_has_each_model_of_an_entry(capsys: Any) -> None:
    list_catalogue.main(["ms-marco-minilm"])
    found = "".join(capsys.readouterr().out.split())
    assert "sentence_ranking" in found and "TinyBERT" in found


def test_what_is_not_served_has_its_reason(capsys: Any) -> None:
    list_catalogue.main(["jina-embeddings-v3"], as_json=True)
    (entry,) = json.loads(capsys.readouterr().out).values()
    assert entry["refused"].startswith("Its own code")
