"""Embed texts with the sparse encoders of sentence-transformers and write sparse.jsonl.

pip install torch 'transformers<6' sentence-transformers safetensors numpy pydantic pyyaml
python tests/reference/make_sparse.py
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

import torch

from tests.reference.sparse import KINDS, TEXTS, TOP_K, write
from tests.tiny import digest

# Only this script needs it.
SENTENCE_TRANSFORMERS: Any = import_module("sentence_transformers")


def main() -> None:
    """Write the data file."""
    torch.use_deterministic_algorithms(True)
    lines = (json.dumps(_part(kind), ensure_ascii=False) + "\n" for kind in KINDS)
    (HERE / "sparse.jsonl").write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"sparse.jsonl of sentence-transformers {SENTENCE_TRANSFORMERS.__version__}\n")


def _part(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        model = SENTENCE_TRANSFORMERS.SparseEncoder(str(folder), device="cpu")
        embedded = model.encode(TEXTS, convert_to_sparse_tensor=False)
        weights = [_largest(row) for row in embedded]
        part = {"checkpoint": kind, "digest": digest(folder), "weights": weights}
        if kind != "router":
            return part
        queries = model.encode_query(TEXTS, convert_to_sparse_tensor=False)
        return {**part, "queries": [_largest(row) for row in queries]}


def _largest(row: torch.Tensor) -> list[Any]:
    """Return the number of weights above zero, and the largest with their places in order."""
    values, places = torch.sort(row, descending=True, stable=True)
    largest = zip(places.tolist()[:TOP_K], values.tolist(), strict=False)
    return [int((row > 0).sum()), [[place, round(value, 5)] for place, value in largest if value]]


if __name__ == "__main__":
    main()
