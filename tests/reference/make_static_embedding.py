"""Embed texts with static embeddings of their own libraries and write static_embedding.jsonl.

pip install torch 'transformers<6' sentence-transformers model2vec safetensors numpy pydantic pyyaml
python tests/reference/make_static_embedding.py
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import json
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.reference.static_embedding import KINDS, TEXTS, write

# Only this script needs them.
LIBRARIES: dict[str, Any] = {
    "sentence-transformers": lambda folder: import_module(
        "sentence_transformers"
    ).SentenceTransformer(folder, device="cpu"),
    "model2vec": lambda folder: import_module("model2vec").StaticModel.from_pretrained(folder),
}


def main() -> None:
    """Write the data file."""
    lines = (json.dumps(_part(kind)) + "\n" for kind in KINDS)
    (HERE / "static_embedding.jsonl").write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(
        f"static_embedding.jsonl of { ({name: version(name) for name in LIBRARIES}) }\n"
    )


def _part(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        vectors = LIBRARIES[KINDS[kind]](str(folder)).encode(TEXTS)
        return {"checkpoint": kind, "vectors": vectors.astype("float64").round(6).tolist()}


if __name__ == "__main__":
    main()
