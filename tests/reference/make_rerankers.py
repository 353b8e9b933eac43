"""Ask the rerankers of sentence-transformers and write their answers to rerankers.jsonl.

pip install torch 'transformers<6' sentence-transformers==6.2.0 safetensors numpy pydantic pyyaml
python tests/reference/make_rerankers.py
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

from tests.reference.rerankers import KINDS, RANKINGS, Ranking, digest, write

# Only this script needs it.
SENTENCE_TRANSFORMERS: Any = import_module("sentence_transformers")


def main() -> None:
    """Write the data file."""
    torch.use_deterministic_algorithms(True)
    lines = (json.dumps(_part(kind), ensure_ascii=False) + "\n" for kind in KINDS)
    (HERE / "rerankers.jsonl").write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"rerankers of sentence-transformers {SENTENCE_TRANSFORMERS.__version__}\n")


def _part(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        scores = [_ask(folder, ranking) for ranking in RANKINGS]
        return {"checkpoint": kind, "digest": digest(folder), "scores": scores}


def _ask(folder: Path, ranking: Ranking) -> list[Any]:
    """Return the score of each text, or its scores of all labels."""
    model = SENTENCE_TRANSFORMERS.CrossEncoder(
        str(folder), max_length=ranking.max_length, device="cpu"
    )
    pairs = [(ranking.query, text) for text in ranking.texts]
    scores = model.predict(pairs, prompt=ranking.prompt).tolist()
    return [
        [round(each, 6) for each in score] if isinstance(score, list) else round(score, 6)
        for score in scores
    ]


if __name__ == "__main__":
    main()
