"""Checkpoints of sparse encoders, and the texts that sentence-transformers embeds with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import tiny
from tests.reference.rows import DULL, FINE, LONG, PEOPLE, SHORT

MODE = "sparse_embedding"
TOP_K = 24
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"family": "Roberta", "seed": 1},
    "modules": {"seed": 2},
    "sum": {"seed": 3},
}
# The configs of the pooling of those that have one.
POOLINGS = {
    "modules": {"pooling_strategy": "max", "activation_function": "log1p_relu"},
    "sum": {"pooling_strategy": "sum", "activation_function": "relu"},
}
TEXTS = [*SHORT, FINE, DULL, PEOPLE, LONG, "zzz"]
PLACE = "sentence_transformers.sparse_encoder.models"


def write(folder: Path, kind: str) -> Path:
    """Write the checkpoint of a kind: the same weights on every machine."""
    tiny.write(folder, MODE, **KINDS[kind])
    if kind in POOLINGS:
        modules = [("", "MLMTransformer"), ("1_SpladePooling", "SpladePooling")]
        entries = [
            {"idx": number, "name": str(number), "path": path, "type": f"{PLACE}.{name}"}
            for number, (path, name) in enumerate(modules)
        ]
        settings = json.dumps({"model_type": "SparseEncoder"})
        (folder / "config_sentence_transformers.json").write_text(settings, encoding="utf-8")
        (folder / "modules.json").write_text(json.dumps(entries), encoding="utf-8")
        (folder / "1_SpladePooling").mkdir()
        config = json.dumps(POOLINGS[kind])
        (folder / "1_SpladePooling" / "config.json").write_text(config, encoding="utf-8")
    return folder
