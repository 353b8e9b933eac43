"""Tiny checkpoints of GLiNER, GLiNER2 and GLiClass, seeded: the same weights on every machine.

Weights are uniform numbers of numpy's PCG64, under the names that the libraries give them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from tests.tiny_tokenizers import write_bert, write_byte_level

TOKENS = ("[FLERT]", "<<ENT>>", "<<SEP>>")
GLICLASS_TOKENS = ("<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>")
GLINER2_TOKENS = (
    *("[SEP_STRUCT]", "[SEP_TEXT]", "[P]", "[C]", "[E]", "[R]", "[L]"),
    *("[EXAMPLE]", "[OUTPUT]", "[DESCRIPTION]"),
)
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


def write_gliclass(folder: Path, kind: Kind, seed: int = 0) -> Path:
    """Write a checkpoint of GLiClass, as its library saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    values = write_tokenizer(folder, kind, GLICLASS_TOKENS)
    encoder = getattr(transformers, f"{kind.encoder}Config")(
        **{**SIZES, **values, **kind.encoder_config}
    )
    count = encoder.vocab_size
    config = {
        "architectures": ["GLiClassModel"],
        "architecture_type": "uni-encoder",
        "class_token_index": count - 3,
        "text_token_index": count - 2,
        "encoder_config": encoder.to_dict(),
        "encoder_model_name": "microsoft/deberta-v3-small",
        "hidden_size": encoder.hidden_size,
        "max_num_classes": 25,
        "model_type": "GLiClass",
        "vocab_size": count,
        **kind.config,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shapes = gliclass_shapes(config, encoder)
    random = np.random.Generator(np.random.PCG64(seed))
    weights = {key: weight(key, each, random, kind.most) for key, each in sorted(shapes.items())}
    save_file(weights, folder / "model.safetensors")
    return folder


def write_gliner2(folder: Path, kind: Kind, seed: int = 0) -> Path:
    """Write a checkpoint of GLiNER2, as its library saves it."""
    (folder / "encoder_config").mkdir(parents=True)
    values = write_tokenizer(folder, kind, GLINER2_TOKENS)
    encoder = getattr(transformers, f"{kind.encoder}Config")(
        **{**SIZES, **values, **kind.encoder_config}
    )
    config = {
        "architectures": ["Extractor"],
        "counting_layer": "count_lstm_v2",
        "max_width": 8,
        "model_name": "microsoft/deberta-v3-base",
        "model_type": "extractor",
        "token_pooling": "first",
        **kind.config,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = json.dumps(encoder.to_dict())
    (folder / "encoder_config" / "config.json").write_text(text, encoding="utf-8")
    shapes = gliner2_shapes(config, encoder)
    random = np.random.Generator(np.random.PCG64(seed))
    weights = {key: weight(key, each, random, kind.most) for key, each in sorted(shapes.items())}
    save_file(weights, folder / "model.safetensors")
    return folder


def gliner2_shapes(config: Mapping[str, Any], encoder: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by their names in gliner2.

    Args:
        config: the content of config.json.
        encoder: the config of the encoder.
    """
    size = encoder.hidden_size
    shapes = _encoder_shapes(encoder, "encoder.")
    linear = partial(add_linear, shapes)
    for name, inputs in (("project_start", size), ("project_end", size), ("out_project", 2 * size)):
        linear(f"span_rep.span_rep_layer.{name}.0", inputs, 4 * size)
        linear(f"span_rep.span_rep_layer.{name}.3", 4 * size, size)
    for name, outputs in (("classifier", 1), ("count_pred", 20)):
        linear(f"{name}.0", size, 2 * size)
        linear(f"{name}.2", 2 * size, outputs)
    shapes["count_embed.pos_embedding.weight"] = (20, size)
    for part in ("ih", "hh"):
        shapes[f"count_embed.gru.weight_{part}_l0"] = (3 * size, size)
        shapes[f"count_embed.gru.bias_{part}_l0"] = (3 * size,)
    return {**shapes, **_label_shapes(config.get("counting_layer", "count_lstm"), size)}


def _label_shapes(counting: str, size: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    linear = partial(add_linear, shapes)
    if counting == "count_lstm":
        linear("count_embed.projector.0", 2 * size, 4 * size)
        linear("count_embed.projector.2", 4 * size, size)
    if counting == "count_lstm_moe":
        linear("count_embed.router.0", size, size)
        linear("count_embed.router.2", size, 4)
        for number, (inputs, outputs) in enumerate(((size, 2 * size), (2 * size, size)), 1):
            shapes[f"count_embed.w{number}"] = (4, inputs, outputs)
            shapes[f"count_embed.b{number}"] = (4, outputs)
    if counting == "count_lstm_v2":
        name, inside = "count_embed.transformer", 128
        linear(f"{name}.in_projector", size, inside)
        for place, inputs in ((0, inside + size), (2, size), (4, size)):
            linear(f"{name}.out_projector.{place}", inputs, size)
        for layer in (f"{name}.transformer.layers.{number}" for number in range(2)):
            shapes[f"{layer}.self_attn.in_proj_weight"] = (3 * inside, inside)
            shapes[f"{layer}.self_attn.in_proj_bias"] = (3 * inside,)
            linear(f"{layer}.self_attn.out_proj", inside, inside)
            linear(f"{layer}.linear1", inside, 2 * inside)
            linear(f"{layer}.linear2", 2 * inside, inside)
            for norm in ("norm1", "norm2"):
                shapes[f"{layer}.{norm}.weight"] = shapes[f"{layer}.{norm}.bias"] = (inside,)
    return shapes


def gliclass_shapes(config: Mapping[str, Any], encoder: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by their names in gliclass.

    Args:
        config: the content of config.json.
        encoder: the config of the encoder.
    """
    size, inside = config["hidden_size"], encoder.hidden_size
    shapes = {**_encoder_shapes(encoder, "model.encoder_model."), "model.logit_scale": ()}
    for name in ("text", "classes"):
        add_linear(shapes, f"model.{name}_projector.linear_1", inside, size)
        add_linear(shapes, f"model.{name}_projector.linear_2", size, inside)
    scorer = config.get("scorer_type", "simple")
    if scorer == "weighted-dot":
        add_linear(shapes, "model.scorer.proj_text", size, 2 * size)
        add_linear(shapes, "model.scorer.proj_label", size, 2 * size)
        add_linear(shapes, "model.scorer.out_mlp.0", 3 * size, 4 * size)
        add_linear(shapes, "model.scorer.out_mlp.3", 4 * size, 1)
    if scorer == "mlp":
        for place, (inputs, outputs) in enumerate(((2 * size, 256), (256, 128), (128, 1))):
            add_linear(shapes, f"model.scorer.mlp.{2 * place}", inputs, outputs)
    return shapes


def write_tokenizer(folder: Path, kind: Kind, tokens: Sequence[str] = TOKENS) -> dict[str, int]:
    """Write the tokenizer of a kind; returns the values for the config of its encoder."""
    own = write_byte_level if kind.encoder == "ModernBert" else write_bert
    values = dict(own(folder))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 512
    if not kind.early:
        tokenizer.add_tokens(list(tokens), special_tokens=True)
    tokenizer.save_pretrained(folder)
    return {**values, "vocab_size": len(tokenizer)}


def shapes_of(config: Mapping[str, Any], encoder: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by their names in gliner.

    Args:
        config: the content of gliner_config.json.
        encoder: the config of the encoder.
    """
    inside = _encoder_shapes(encoder, "token_rep_layer.bert_layer.model.")
    return {**inside, **_head_shapes(config, encoder.hidden_size)}


def _encoder_shapes(encoder: Any, prefix: str) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        module = transformers.AutoModel.from_config(encoder)
    return {f"{prefix}{name}": tuple(each.shape) for name, each in module.named_parameters()}


def add_linear(shapes: dict[str, tuple[int, ...]], name: str, inputs: int, outputs: int) -> None:
    """Add the shapes of a linear layer."""
    shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)


def _head_shapes(config: Mapping[str, Any], encoder_size: int) -> dict[str, tuple[int, ...]]:
    size = config["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {}

    linear = partial(add_linear, shapes)

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
    in_encoder = "bert_layer" in name or "encoder_model" in name or name.startswith("encoder.")
    if in_encoder and len(shape) < 2:
        return np.full(shape, 0.0 if name.endswith("bias") else 1.0, dtype=np.float32)
    return np.asarray(random.random(shape) * 2 * most - most, dtype=np.float32)
