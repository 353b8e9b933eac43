"""The rerankers to measure, with seeded random weights, and pairs of a number of tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerBase,
)

from benchmarks.models import TINY
from benchmarks.texts import is_plain
from hf_serve.demo_models.minilm import load_tokenizer

DESCRIPTIONS = {
    "ettin_17m": "The architecture of ettin-reranker-17m: ModernBERT, 7 layers of 256, untrained.",
    "bert_base": "The architecture of bert-base with one label, 12 layers of 768, untrained.",
}
LENGTHS = (128, 512)
QUERY_TOKENS = 16
SPECIAL_TOKENS = 3
NAMES = "sentence_transformers.{}"
IDENTITY, GELU = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.GELU"

Query = tuple[str, list[str]]


def ettin_17m(folder: Path, *, smoke: bool) -> None:
    """Write a model with the modules of an Ettin reranker."""
    layers = 2 if smoke else 7
    config = ModernBertConfig(
        vocab_size=50_368,
        hidden_size=256,
        intermediate_size=384,
        num_hidden_layers=layers,
        num_attention_heads=4,
        pad_token_id=0,
    )
    ModernBertModel(config).save_pretrained(folder)
    size = config.hidden_size
    modules: list[tuple[str, Mapping[str, Any]]] = [
        ("sentence_transformer.modules.pooling.Pooling", {"pooling_mode": "cls"}),
        ("base.modules.dense.Dense", _dense(size, GELU)),
        ("sentence_transformer.modules.layer_norm.LayerNorm", {"dimension": size}),
        ("base.modules.dense.Dense", {**_dense(1, IDENTITY), "module_output_name": "scores"}),
    ]
    modules = [
        (kind, {"embedding_dimension": size, **config} if kind.endswith("Pooling") else config)
        for kind, config in modules
    ]
    _write_modules(folder, modules)


def bert_base(folder: Path, *, smoke: bool) -> None:
    """Write a classifier with one label."""
    config = BertConfig(**TINY, num_labels=1) if smoke else BertConfig(num_labels=1)
    BertForSequenceClassification(config).save_pretrained(folder)


WRITERS: Mapping[str, Callable[..., None]] = {"ettin_17m": ettin_17m, "bert_base": bert_base}


def reranker(name: str, work: Path, *, smoke: bool) -> Path:
    """Return the folder of a model, made where it is missing."""
    folder = work / "models" / (f"{name}_smoke" if smoke else name)
    if not (folder / "tokenizer.json").is_file():
        torch.manual_seed(0)
        folder.mkdir(parents=True, exist_ok=True)
        WRITERS[name](folder, smoke=smoke)
        load_tokenizer().save_pretrained(folder)
    return folder


def queries(tokenizer: PreTrainedTokenizerBase, length: int, count: int, each: int) -> list[Query]:
    """Return queries with texts; a query and a text have a number of tokens together."""
    drawn = random.Random(length)
    words = sorted(filter(is_plain, tokenizer.get_vocab()))

    def text(tokens: int) -> str:
        return " ".join(drawn.choices(words, k=tokens))

    rest = length - QUERY_TOKENS - SPECIAL_TOKENS
    return [(text(QUERY_TOKENS), [text(rest) for _ in range(each)]) for _ in range(count)]


def _dense(count: int, activation: str) -> dict[str, Any]:
    return {
        "in_features": 256,
        "out_features": count,
        "bias": count == 1,
        "activation_function": activation,
        "module_input_name": "sentence_embedding",
        "module_output_name": "sentence_embedding",
    }


def _write_modules(folder: Path, modules: list[tuple[str, Mapping[str, Any]]]) -> None:
    kinds = [("base.modules.transformer.Transformer", {}), *modules]
    entries = []
    for number, (kind, config) in enumerate(kinds):
        path = f"{number}_{kind.rpartition('.')[2]}" if number else ""
        entries.append(
            {"idx": number, "name": str(number), "path": path, "type": NAMES.format(kind)}
        )
        if number:
            (folder / path).mkdir(exist_ok=True)
            _dump(folder / path / "config.json", config)
        if weights := _weights(kind, config):
            save_file(weights, folder / path / "model.safetensors")
    _dump(folder / "modules.json", entries)
    task = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    _dump(folder / "sentence_bert_config.json", {**task, "modality_config": {"text": text}})
    settings = {"activation_fn": IDENTITY, "model_type": "CrossEncoder", "prompts": {}}
    _dump(folder / "config_sentence_transformers.json", settings)


def _weights(kind: str, config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    if kind.endswith("LayerNorm"):
        return {f"norm.{name}": torch.ones(config["dimension"]) for name in ("weight", "bias")}
    if not kind.endswith("Dense"):
        return {}
    weights = {"linear.weight": torch.randn(config["out_features"], config["in_features"]) * 0.05}
    return weights | ({"linear.bias": torch.zeros(1)} if config["bias"] else {})


def _dump(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")
