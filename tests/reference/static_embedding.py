"""Checkpoints of static embeddings, and the texts that their own libraries embed with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.reference.rows import DULL, FINE, LONG, SHORT
from tests.tiny_tokenizers import write_bert, write_gpt2, write_roberta

MODE = "sentence_embedding"
TEXTS = [*SHORT, FINE, DULL, LONG, "zzz"]
SIZE, CLUSTERS = 24, 50
MODULE = "sentence_transformers.models.StaticEmbedding"
NEW_MODULE = "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding"
NORMALIZE = {"path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}
# The library of each kind.
KINDS = {
    "folder": "sentence-transformers",
    "root": "sentence-transformers",
    "potion": "model2vec",
    "quantized": "model2vec",
}


def write(folder: Path, kind: str) -> Path:
    """Write the checkpoint of a kind: the same vectors on every machine."""
    folder.mkdir(parents=True)
    WRITE[kind](folder)
    return folder


def _write_folder(folder: Path) -> None:
    """Write a checkpoint as static-retrieval-mrl-en-v1 is."""
    inner = folder / "0_StaticEmbedding"
    inner.mkdir()
    tokens = _write_tokenizer(inner, write_bert)
    _write_modules(folder, {"path": inner.name, "type": MODULE})
    settings = {"prompts": {"query": "Who sings? "}, "similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings), "utf-8")
    save_file({"embedding.weight": _vectors(tokens)}, inner / "model.safetensors")


def _write_root(folder: Path) -> None:
    """Write a checkpoint as newer versions of sentence-transformers write it."""
    tokens = _write_tokenizer(folder, write_roberta)
    _write_modules(folder, {"path": "", "type": NEW_MODULE}, NORMALIZE)
    save_file({"embedding.weight": _vectors(tokens)}, folder / "model.safetensors")


def _write_potion(folder: Path) -> None:
    """Write a checkpoint as potion-base-8M is."""
    tokens = _write_tokenizer(folder, write_bert)
    _write_modules(folder, {"path": ".", "type": MODULE}, NORMALIZE)
    _write_config(folder, normalize=True, hidden_dim=SIZE, seq_length=1_000_000)
    save_file({"embeddings": _vectors(tokens)}, folder / "model.safetensors")


def _write_quantized(folder: Path) -> None:
    """Write a checkpoint of few vectors that tokens share, in 8 bits, which are weighted."""
    tokens = _write_tokenizer(folder, write_gpt2)
    _write_config(folder, normalize=False, max_length=40, vocabulary_quantization=CLUSTERS)
    random = np.random.Generator(np.random.PCG64(7))
    tensors = {
        "embeddings": (_vectors(CLUSTERS) * 127).astype(np.int8),
        "mapping": random.integers(0, CLUSTERS, tokens),
        "weights": random.random(tokens),
    }
    save_file(tensors, folder / "model.safetensors")


WRITE: Mapping[str, Callable[[Path], None]] = {
    "folder": _write_folder,
    "root": _write_root,
    "potion": _write_potion,
    "quantized": _write_quantized,
}


def _write_tokenizer(folder: Path, write_own: Callable[[Path], Any]) -> int:
    """Write a tokenizer.json alone; return the number of its tokens."""
    write_own(folder)
    (folder / "tokenizer_config.json").unlink()
    document = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    return len(document["model"]["vocab"])


def _write_modules(folder: Path, *modules: Mapping[str, str]) -> None:
    entries = [{"idx": at, "name": str(at), **each} for at, each in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(entries), "utf-8")


def _write_config(folder: Path, **settings: Any) -> None:
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], **settings}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def _vectors(count: int) -> Any:
    random = np.random.Generator(np.random.PCG64(count))
    return (random.random((count, SIZE)) - 0.5).astype(np.float32)
