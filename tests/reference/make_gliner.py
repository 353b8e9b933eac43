"""Run gliner and gliclass, and write their answers to gliner.jsonl.

    pip install torch gliner gliclass pydantic pyyaml
    python tests/reference/make_gliner.py

Writes answers of checkpoints that are the same on every machine.
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.reference.gliner_checkpoints import (
    GLICLASS_KINDS,
    KINDS,
    classifications,
    digest,
    requests,
    write,
)

# Not in the environment in which this repository is type-checked.
gliner: Any = import_module("gliner")
gliclass: Any = import_module("gliclass")
transformers: Any = import_module("transformers")


def main() -> None:
    """Write the data file."""
    parts = [*map(_part, KINDS), *map(_labels, GLICLASS_KINDS)]
    lines = (json.dumps(each) + "\n" for each in parts)
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


def _labels(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        model = gliclass.GLiClassModel.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        classify = gliclass.ZeroShotClassificationPipeline(
            model, tokenizer, max_length=512, device="cpu", progress_bar=False
        )
        answers = [
            [
                [each["label"], round(float(each["score"]), 5)]
                for each in classify(
                    text, labels, threshold=0, classification_type=_type(settings)
                )[0]
            ]
            for text, labels, settings in classifications()
        ]
        return {"checkpoint": kind, "digest": digest(folder), "labels": answers}


def _type(settings: Mapping[str, Any]) -> str:
    return "multi-label" if settings.get("multi_label") else "single-label"


def _rounded(entity: dict[str, Any]) -> list[Any]:
    score = round(float(entity["score"]), 5)
    return [entity["start"], entity["end"], entity["label"], score]


if __name__ == "__main__":
    main()
