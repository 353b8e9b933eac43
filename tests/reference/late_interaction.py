"""ColBERT checkpoints of the reference, and the texts that PyLate reads with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests import tiny
from tests.reference.embedding_checkpoints import CONFIGS, IDENTITY, TANH, Module, write_modules
from tests.reference.rows import DULL, FINE, LONG, ODD, PEOPLE

MODE = "late_interaction"
QUERIES = ("Who sings in the bar?", ODD, "zzz", LONG)
TEXTS = (FINE, PEOPLE, DULL, ODD, LONG)
SETTINGS = {
    # Words of the vocabulary that are in none of the texts.
    "query_prefix": "moon",
    "document_prefix": "fox",
    "query_length": 16,
    "document_length": 40,
    "do_query_expansion": True,
    "attend_to_expansion_tokens": False,
    "skiplist_words": [".", ",", ":", "…"],
}


def dense(size: int, count: int, activation: str = IDENTITY, *, residual: bool = False) -> Module:
    """Return a dense layer of PyLate; its weights are seeded with its sizes."""
    sizes = {"in_features": size, "out_features": count, "bias": True}
    options = {"activation_function": activation, "use_residual": residual}
    return "pylate.models.Dense.Dense", {**sizes, **options}


# The family of each checkpoint with PyLate's files, its layers, and its settings.
KINDS: dict[str, tuple[str, Sequence[Module], Mapping[str, Any]]] = {
    "expanded": ("Bert", [dense(32, 8)], SETTINGS),
    "attended": ("Bert", [dense(32, 8)], {**SETTINGS, "attend_to_expansion_tokens": True}),
    "plain": (
        "ModernBert",
        [dense(32, 24, TANH), dense(24, 24, residual=True), dense(24, 8, residual=True)],
        {**SETTINGS, "query_prefix": "", "document_prefix": "", "do_query_expansion": False},
    ),
}
# With the files of the authors' library.
STANFORD = "stanford"
METADATA = {
    "query_token_id": "moon",
    "doc_token_id": "fox",
    "query_maxlen": 20,
    "doc_maxlen": 50,
    "attend_to_mask_tokens": False,
    "dim": 8,
}


def write(folder: Path, kind: str) -> Path:
    """Write the checkpoint of a kind."""
    if kind == STANFORD:
        config = json.loads((tiny.write(folder, MODE, seed=5) / "config.json").read_text("utf-8"))
        text = json.dumps({**config, "architectures": ["HF_ColBERT"]})
        (folder / "config.json").write_text(text, encoding="utf-8")
        (folder / "artifact.metadata").write_text(json.dumps(METADATA), encoding="utf-8")
        path = folder / "model.safetensors"
        weights = {f"bert.{name}": each for name, each in load_file(path).items()}
        linear = {"linear.weight": _weight(8, 32)}
        save_file({**weights, **linear}, path, metadata={"format": "pt"})
        return folder
    family, layers, settings = KINDS[kind]
    tiny.write(folder, MODE, family=family, seed=len(kind), **CONFIGS.get(family, {}))
    write_modules(folder, layers)
    for number, (_, config) in enumerate(layers, 1):
        _write_weights(folder / f"{number}_Dense" / "model.safetensors", config)
    text = json.dumps({"prompts": {}, **settings})
    (folder / "config_sentence_transformers.json").write_text(text, encoding="utf-8")
    return folder


def _write_weights(path: Path, config: Mapping[str, Any]) -> None:
    size, count = config["in_features"], config["out_features"]
    weight = _weight(count, size)
    weights = {"linear.weight": weight, "linear.bias": weight[:, 0].copy()}
    if config["use_residual"] and size != count:
        weights["residual.weight"] = weight[:, ::-1].copy()
    save_file(weights, path, metadata={"format": "pt"})


def _weight(rows: int, columns: int) -> Any:
    random = np.random.Generator(np.random.PCG64(rows * columns))
    return (random.random((rows, columns)) - 0.5).astype(np.float32)
