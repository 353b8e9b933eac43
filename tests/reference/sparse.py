"""Checkpoints of sparse encoders, and the texts that sentence-transformers embeds with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests import tiny
from tests.reference.rows import DULL, FINE, LONG, PEOPLE, SHORT

MODE = "sparse_embedding"
TOP_K = 24
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"family": "Roberta", "seed": 1},
    "modules": {"seed": 2},
    "sum": {"seed": 3},
    "router": {"seed": 4},
}
# The configs of the pooling of those that have one.
POOLINGS = {
    "modules": {"pooling_strategy": "max", "activation_function": "log1p_relu"},
    "sum": {"pooling_strategy": "sum", "activation_function": "relu"},
}
TEXTS = [*SHORT, FINE, DULL, PEOPLE, LONG, "zzz"]
PLACE = "sentence_transformers.sparse_encoder.models"


# As in opensearch-neural-sparse-encoding-doc-v3-distill.
ROUTER: dict[str, Any] = {
    "types": {
        "query_0_SparseStaticEmbedding": f"{PLACE}.SparseStaticEmbedding",
        "": f"{PLACE}.MLMTransformer",
        "document_1_SpladePooling": f"{PLACE}.SpladePooling",
    },
    "structure": {
        "query": ["query_0_SparseStaticEmbedding"],
        "document": ["", "document_1_SpladePooling"],
    },
    "parameters": {"default_route": "document", "allow_empty_key": True},
}


def write(folder: Path, kind: str) -> Path:
    """Write the checkpoint of a kind: the same weights on every machine."""
    tiny.write(folder, MODE, **KINDS[kind])
    if kind == "router":
        _write_router(folder)
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


def _write_router(folder: Path) -> None:
    """Write a router between a table of weights for queries, and the model for documents."""
    entry = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}
    (folder / "modules.json").write_text(json.dumps([entry]), encoding="utf-8")
    settings = json.dumps({"model_type": "SparseEncoder"})
    (folder / "config_sentence_transformers.json").write_text(settings, encoding="utf-8")
    (folder / "router_config.json").write_text(json.dumps(ROUTER), encoding="utf-8")
    query, pooling = folder / "query_0_SparseStaticEmbedding", folder / "document_1_SpladePooling"
    query.mkdir()
    pooling.mkdir()
    config = {"pooling_strategy": "max", "activation_function": "log1p_relu"}
    (pooling / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (query / "config.json").write_text(json.dumps({"frozen": False}), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (query / name).write_bytes((folder / name).read_bytes())
    size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    weight = np.random.Generator(np.random.PCG64(size)).random(size) * 9
    save_file({"weight": weight.astype(np.float32)}, query / "model.safetensors")
