"""Tiny GLiNER checkpoints, seeded: the same weights on every machine.

Weights are uniform numbers of numpy's PCG64, under the names that gliner gives them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from tests.tiny_tokenizers import write_bert, write_byte_level

TOKENS = ("[FLERT]", "<<ENT>>", "<<SEP>>")
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
}
DEBERTA = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "max_relative_positions": -1,
    "position_buckets": 16,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "type_vocab_size": 0,
}


@dataclass(frozen=True)
class Kind:
    """A kind of checkpoint: its encoder, its own config, and how wide its weights are.

    Attributes:
        early: whether it has neither the config of its encoder nor the tokens of labels.
    """

    encoder: str
    config: Mapping[str, Any] = field(default_factory=dict)
    encoder_config: Mapping[str, Any] = field(default_factory=dict)
    early: bool = False
    most: float = 0.3


def write(folder: Path, kind: Kind, seed: int = 0) -> Path:
    """Write a checkpoint of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    values = write_tokenizer(folder, kind)
    encoder = getattr(transformers, f"{kind.encoder}Config")(
        **{**SIZES, **values, **kind.encoder_config}
    )
    own = {"span_mode": "markerV0", "max_width": 12, "num_rnn_layers": 1, **kind.config}
    config = {"model_name": "microsoft/deberta-v3-small", "max_len": 384, **own}
    random = np.random.Generator(np.random.PCG64(seed))
    if kind.early:
        (folder / "config.json").write_text(json.dumps(encoder.to_dict()), encoding="utf-8")
        encoder.vocab_size += len(TOKENS)
    else:
        count = encoder.vocab_size
        config |= {"class_token_index": count - 2, "vocab_size": count}
        config["encoder_config"] = encoder.to_dict()
    text = json.dumps(config)
    (folder / "gliner_config.json").write_text(text, encoding="utf-8")
    shapes = shapes_of(config, encoder)
    weights = {key: weight(key, each, random, kind.most) for key, each in sorted(shapes.items())}
    save_file(weights, folder / "model.safetensors")
    return folder


def write_tokenizer(folder: Path, kind: Kind) -> dict[str, int]:
    """Write the tokenizer of a kind; returns the values for the config of its encoder."""
    own = write_byte_level if kind.encoder == "ModernBert" else write_bert
    values = dict(own(folder))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 512
    if not kind.early:
        tokenizer.add_tokens(list(TOKENS), special_tokens=True)
    tokenizer.save_pretrained(folder)
    return {**values, "vocab_size": len(tokenizer)}


def shapes_of(config: Mapping[str, Any], encoder: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by their names in gliner.

    Args:
        config: the content of gliner_config.json.
        encoder: the config of the encoder.
    """
    with torch.device("meta"):
        module = transformers.AutoModel.from_config(encoder)
    names = {name: tuple(each.shape) for name, each in module.named_parameters()}
    inside = {f"token_rep_layer.bert_layer.model.{name}": shape for name, shape in names.items()}
    return {**inside, **_head_shapes(config, encoder.hidden_size)}


def _head_shapes(config: Mapping[str, Any], encoder_size: int) -> dict[str, tuple[int, ...]]:
    size = config["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, inputs: int, outputs: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def layers(name: str, inputs: int, inner: int) -> None:
        linear(f"{name}.0", inputs, inner)
        linear(f"{name}.3", inner, size)

    if size != encoder_size:
        linear("token_rep_layer.projection", encoder_size, size)
    if config.get("num_rnn_layers", 1):
        for end in ("", "_reverse"):
            for part, inputs in (("ih", size), ("hh", size // 2)):
                shapes[f"rnn.lstm.weight_{part}_l0{end}"] = (2 * size, inputs)
                shapes[f"rnn.lstm.bias_{part}_l0{end}"] = (2 * size,)
    if config["span_mode"] == "token_level":
        linear("scorer.proj_token", size, 2 * size)
        linear("scorer.proj_label", size, 2 * size)
        linear("scorer.out_mlp.0", 3 * size, 4 * size)
        linear("scorer.out_mlp.3", 4 * size, 3)
        return shapes
    layer, inner = "span_rep_layer.span_rep_layer", size * 4
    if config["span_mode"] == "marker":
        inner = size * 2
        linear(f"{layer}.out_project", 2 * size, size)
    else:
        layers(f"{layer}.out_project", 2 * size, inner)
    layers(f"{layer}.project_start", size, inner)
    layers(f"{layer}.project_end", size, inner)
    layers("prompt_rep_layer", size, size * 4)
    return shapes


def weight(name: str, shape: tuple[int, ...], random: np.random.Generator, most: float) -> Any:
    """Return uniform numbers; a norm keeps its ones, and a bias of the encoder its zeros."""
    in_encoder = "bert_layer" in name
    if in_encoder and len(shape) < 2:
        return np.full(shape, 0.0 if name.endswith("bias") else 1.0, dtype=np.float32)
    return (random.random(shape) * 2 * most - most).astype(np.float32)
