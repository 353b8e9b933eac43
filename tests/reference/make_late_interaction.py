"""Run PyLate and write its vectors and scores to late_interaction.jsonl.

    pip install torch pylate pydantic pyyaml
    python tests/reference/make_late_interaction.py

Writes answers of checkpoints that are the same on every machine.
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.reference.embedding_checkpoints import digest
from tests.reference.late_interaction import KINDS, QUERIES, STANFORD, TEXTS, write

# Not in the environment in which this repository is type-checked.
models: Any = import_module("pylate.models")
scores: Any = import_module("pylate.scores")


def main() -> None:
    """Write the data file."""
    lines = (json.dumps(_part(kind)) + "\n" for kind in (*KINDS, STANFORD))
    (HERE / "late_interaction.jsonl").write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"late_interaction.jsonl of PyLate {import_module('pylate').__version__}\n")


def _part(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        model = models.ColBERT(str(folder), device="cpu")
        queries = [_vectors(model, text, is_query=True) for text in QUERIES]
        texts = [_vectors(model, text, is_query=False) for text in TEXTS]
        ranked = [
            [round(float(scores.colbert_scores(query, text)[0, 0]), 4) for text in texts]
            for query in queries
        ]
        return {
            "checkpoint": kind,
            "digest": digest(folder),
            "query": [_rounded(each) for each in queries],
            "document": [_rounded(each) for each in texts],
            "scores": ranked,
        }


def _vectors(model: Any, text: str, *, is_query: bool) -> Any:
    """Return the vectors of one text, alone in its batch. Shape: (1, tokens, size)."""
    (found,) = model.encode([text], is_query=is_query, convert_to_tensor=True)
    return found[None]


def _rounded(vectors: Any) -> list[Any]:
    return [[round(number, 4) for number in vector] for vector in vectors[0].tolist()]


if __name__ == "__main__":
    main()
