"""What the answers of the libraries of embeddings and ranking are kept for: texts and prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_serve.scripts.hub.catalogue import CatalogueEntry
from tests.reference.rows import DULL, FINE, LONG, ODD, PEOPLE

TEXTS = (FINE, ODD, LONG, "zzz")
QUERIES = ("Who sings in the bar?", DULL)
# Texts, labels and parameters.
EXTRACTIONS: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
    (FINE, ["person", "city"], {"threshold": 0.95}),
    (ODD, ["music", "unbelievable film", "who sings in the bar"], {"threshold": 0.3}),
    (PEOPLE, ["person", "city"], {"threshold": 0.97, "flat_ner": False}),
    (LONG, ["x"], {"threshold": 0.9, "multi_label": True}),
)
# Texts, labels, and whether each label is scored by itself.
CLASSIFICATIONS: tuple[tuple[str, list[str], bool], ...] = (
    (FINE, ["person", "city"], False),
    (ODD, ["music", "unbelievable film", "who sings in the bar"], True),
    (PEOPLE, ["person", "city"], True),
    (LONG, ["x"], True),
)
# Of the weights of a text, these many of the largest are kept.
LARGEST = 20
PATH = Path(__file__).with_name("expected.jsonl")


def prompts_of(entry: CatalogueEntry) -> Mapping[str, str]:
    """Return the prompts of an entry by their names, in its files or in its YAML."""
    settings = entry.checkpoint.files.get("config_sentence_transformers.json") or {}
    return {**settings.get("prompts", {}), **entry.handler.get("prompts", {})}


def embedding_calls(entry: CatalogueEntry) -> list[tuple[str, str | None]]:
    """Return texts, each with the name of the prompt before it, if any."""
    prompts = [name for name, text in prompts_of(entry).items() if text]
    return [*((text, None) for text in TEXTS), *((FINE, name) for name in prompts[:2])]


def some(vectors: Sequence[Any]) -> list[Any]:
    """Return the number of the vectors of tokens, and a few of them."""
    return [len(vectors), *vectors[:3], *vectors[-2:]]


def read() -> dict[str, Any]:
    """Return the kept answers by the names of the entries."""
    lines = PATH.read_text(encoding="utf-8").splitlines() if PATH.exists() else []
    return {each["entry"]: each["answers"] for each in map(json.loads, lines)}
