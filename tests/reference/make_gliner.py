"""Run gliner and write its entities to gliner.jsonl.

    pip install torch gliner pydantic pyyaml
    python tests/reference/make_gliner.py

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

from tests.reference.gliner_checkpoints import KINDS, digest, requests, write

# Not in the environment in which this repository is type-checked.
gliner: Any = import_module("gliner")


def main() -> None:
    """Write the data file."""
    lines = (json.dumps(_part(kind)) + "\n" for kind in KINDS)
    (HERE / "gliner.jsonl").write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"gliner.jsonl of gliner {gliner.__version__}\n")


def _part(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        # gliner reads the config of an early checkpoint's encoder there.
        path = folder / "gliner_config.json"
        config = {**json.loads(path.read_text(encoding="utf-8")), "model_name": str(folder)}
        path.write_text(json.dumps(config), encoding="utf-8")
        model = gliner.GLiNER.from_pretrained(
            str(folder), load_tokenizer=True, strict=True, local_files_only=True
        )
        entities = [
            [_rounded(each) for each in model.predict_entities(text, labels, **settings)]
            for text, labels, settings in requests()
        ]
        return {"checkpoint": kind, "digest": digest(folder), "entities": entities}


def _rounded(entity: dict[str, Any]) -> list[Any]:
    score = round(float(entity["score"]), 5)
    return [entity["start"], entity["end"], entity["label"], score]


if __name__ == "__main__":
    main()
