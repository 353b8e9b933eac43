"""Ask the cross-encoders of sentence-transformers and write their answers to rankings.jsonl.

pip install torch 'transformers<6' sentence-transformers safetensors numpy pydantic pyyaml
python tests/reference/make_rankings.py
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

from tests.reference.rankings import KINDS, RANKINGS, Ranking, write
from tests.tiny import digest

# Only this script needs it.
SENTENCE_TRANSFORMERS: Any = import_module("sentence_transformers")


def main() -> None:
    """Write the data file."""
    torch.use_deterministic_algorithms(True)
    parts = list(map(_part, KINDS))
    lines = (json.dumps(part, ensure_ascii=False) + "\n" for part in parts)
    (HERE / "rankings.jsonl").write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"rankings of sentence-transformers {SENTENCE_TRANSFORMERS.__version__}\n")


def _part(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        answers = [_ask(folder, ranking) for ranking in RANKINGS]
        return {"checkpoint": kind, "digest": digest(folder), "answers": answers}


def _ask(folder: Path, ranking: Ranking) -> Any:
    """Return the ranking; of a model with several labels, the scores of each pair."""
    model = SENTENCE_TRANSFORMERS.CrossEncoder(
        str(folder), max_length=ranking.max_length, device="cpu"
    )
    if model.num_labels > 1:
        scores = model.predict([(ranking.query, text) for text in ranking.texts])
        return [[round(float(score), 6) for score in row] for row in scores]
    ranked = model.rank(ranking.query, ranking.texts, top_k=ranking.top_n)
    return [
        {"index": int(each["corpus_id"]), "score": round(float(each["score"]), 6)}
        for each in ranked
    ]


if __name__ == "__main__":
    main()
