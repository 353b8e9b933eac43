"""The sentence-transformers checkpoints of the reference: the same weights on every machine."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests import tiny
from tests.reference.checkpoints import minilm
from tests.reference.rows import DULL, FINE, LONG, ODD, PEOPLE

MODE = "sentence_embedding"
TEXTS = (FINE, ODD, PEOPLE, LONG, "zzz", " Ada ", DULL)
SIZE = 32
POOLING = "sentence_transformers.models.Pooling"
NEW_POOLING = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
NORMALIZE = "sentence_transformers.models.Normalize"
DENSE = "sentence_transformers.models.Dense"
TANH, IDENTITY = "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity"
PROMPTS = {"query": "Who sings? ", "passage": "A text: "}

Module = tuple[str, Mapping[str, Any]]


def old(*modes: str, **settings: Any) -> Module:
    """Return a pooling with a key for each mode."""
    return POOLING, {
        "word_embedding_dimension": SIZE,
        **{f"pooling_mode_{mode}": True for mode in modes},
        **settings,
    }


def new(mode: Any, **settings: Any) -> Module:
    """Return a pooling with one key for the modes."""
    return NEW_POOLING, {"embedding_dimension": SIZE, "pooling_mode": mode, **settings}


def dense(size: int, count: int, activation: str, *, bias: bool = True) -> Module:
    """Return a dense layer; its weights are seeded with its sizes."""
    sizes = {"in_features": size, "out_features": count, "bias": bias}
    return DENSE, {**sizes, "activation_function": activation}


def similarity(name: str) -> dict[str, Any]:
    """Return the file that names the similarity of vectors."""
    return {"config_sentence_transformers.json": {"similarity_fn_name": name}}


NORM: Module = (NORMALIZE, {})
# The family of each checkpoint, its modules behind the model, and other files by their names.
KINDS: dict[str, tuple[str, Sequence[Module], Mapping[str, Any]]] = {
    "alone": ("Bert", [], {}),
    "cls": ("Bert", [old("cls_token"), NORM], similarity("euclidean")),
    "dense": (
        "Bert",
        [old("mean_tokens", "max_tokens"), dense(64, 16, TANH), NORM, dense(16, 8, IDENTITY)],
        {"sentence_bert_config.json": {"max_seq_length": 20, "do_lower_case": False}},
    ),
    "prompts": (
        "XLMRoberta",
        [new(["weightedmean", "lasttoken", "cls"], include_prompt=False), NORM],
        {
            "config_sentence_transformers.json": {
                "prompts": PROMPTS,
                "default_prompt_name": "passage",
                "similarity_fn_name": "dot",
            },
            "sentence_bert_config.json": {"max_seq_length": 40, "do_lower_case": True},
        },
    ),
    "instructed": (
        "Bert",
        [old("mean_tokens", include_prompt=False)],
        {"config_sentence_transformers.json": {"prompts": PROMPTS}},
    ),
    "mpnet": ("MPNet", [new("mean_sqrt_len_tokens")], similarity("manhattan")),
    "modernbert": ("ModernBert", [new("mean"), NORM], {}),
    "qwen2": ("Qwen2", [new("lasttoken"), NORM], {}),
    "qwen3": ("Qwen3", [old("lasttoken"), NORM], {}),
}
CONFIGS: dict[str, dict[str, Any]] = {
    # With a window of 16 tokens in every second layer.
    "ModernBert": {"local_attention": 16, "global_attn_every_n_layers": 2, "sep_token_id": 2},
    "MPNet": {"relative_attention_num_buckets": 32},
    "Qwen2": {"num_key_value_heads": 1},
    "Qwen3": {"num_key_value_heads": 1, "head_dim": 16},
}


def write(folder: Path, kind: str) -> Path:
    """Write the checkpoint of a kind, or the pretrained MiniLM with its files."""
    if kind == "minilm":
        shutil.copytree(minilm(), folder)
        return folder
    family, modules, files = KINDS[kind]
    tiny.write(folder, MODE, family=family, seed=len(kind), **CONFIGS.get(family, {}))
    if family.startswith("Qwen"):
        _pad_on_the_left(folder)
    write_modules(folder, modules)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def write_modules(folder: Path, modules: Sequence[Module]) -> None:
    """Write modules.json and a folder for each module; nothing if there are none."""
    if not modules:
        return
    entries = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    ]
    for number, (kind, config) in enumerate(modules, 1):
        path = f"{number}_{kind.rpartition('.')[2]}"
        entries.append({"idx": number, "name": str(number), "path": path, "type": kind})
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        if kind == DENSE:
            weights = _weights(config["out_features"], config["in_features"])
            save_file(weights, folder / path / "model.safetensors", metadata={"format": "pt"})
    (folder / "modules.json").write_text(json.dumps(entries), encoding="utf-8")


def digest(folder: Path) -> str:
    """Return a fingerprint of all weights, and of the vocabulary."""
    inner = b"".join(path.read_bytes() for path in sorted(folder.glob("*/model.safetensors")))
    return hashlib.sha256(tiny.digest(folder).encode() + inner).hexdigest()


def _weights(rows: int, columns: int) -> dict[str, Any]:
    random = np.random.Generator(np.random.PCG64(rows * columns))
    weight = (random.random((rows, columns)) - 0.5).astype(np.float32)
    return {"linear.weight": weight, "linear.bias": weight[:, 0].copy()}


def _pad_on_the_left(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "padding_side": "left"}), encoding="utf-8")
