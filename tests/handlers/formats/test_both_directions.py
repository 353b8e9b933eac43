"""Decoders that attend in both directions: `is_causal: false` in their config, as in gte-Qwen2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import GPTNeoConfig, GPTNeoModel

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.formats import export
from tests.reference.embedding_checkpoints import MODE, write
from tests.reference.rows import DULL, FINE, LONG, PEOPLE
from tests.sentences import refused
from tests.serving import Served
from tests.tiny_tokenizers import write_gpt2

TEXTS = [FINE, "zzz", PEOPLE, LONG, DULL]


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 of which the last token is pooled, with `is_causal: false`."""
    folder = write(tmp_path_factory.mktemp("qwen2") / "model", "qwen2")
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "is_causal": False}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model(qwen2: Path) -> Served:
    return Served(qwen2, MODE)


def test_vectors_are_those_of_attention_in_both_directions(qwen2: Path, model: Served) -> None:
    tokenizer = model.engine.task.checkpoint.tokenizer
    config = model.engine.task.checkpoint.config
    weights = load_file(qwen2 / "model.safetensors")
    limit = {"truncation": True, "max_length": model.engine.task.checkpoint.limit}
    expected = [vector(weights, config, tokenizer(text, **limit)["input_ids"]) for text in TEXTS]
    assert model.engine.model.capabilities.supports_packing
    together = [answer for _, answer in model.post(*({"inputs": text} for text in TEXTS))]
    padded = Served(qwen2, MODE, BetterTransformer=False)
    for answers in (
        together,
        [model.ask(text) for text in TEXTS],
        [answer for _, answer in padded.post(*({"inputs": text} for text in TEXTS))],
    ):
        np.testing.assert_allclose(answers, expected, atol=2e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_graph_attends_in_both_directions(qwen2: Path, model: Served, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    shutil.copytree(qwen2, folder)
    keys = {"save_mode": "torchscript", "dtype": "float32"}
    export(folder, ModelConfig.parse({"handler": {"mode": MODE, **keys}}), folder)
    graph = Served(folder, MODE, **keys)
    np.testing.assert_allclose(
        [graph.ask(text) for text in TEXTS], [model.ask(text) for text in TEXTS], atol=1e-5
    )


def test_a_model_type_that_reads_earlier_tokens_alone_is_refused(tmp_path: Path) -> None:
    """The attention of GPT-Neo has a mask that its config does not change."""
    write_gpt2(tmp_path)
    sizes = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 400}
    config = GPTNeoConfig(**sizes, attention_types=[[["global"], 1]], is_causal=False)
    GPTNeoModel(config).save_pretrained(tmp_path)
    with refused(WrongCheckpoint, "is_causal", "gpt_neo"):
        Served(tmp_path, MODE)


def rotated(values: torch.Tensor, base: float) -> torch.Tensor:
    """Return the rotary embedding of values of shape (heads, tokens, size)."""
    size = values.shape[-1]
    frequencies = base ** -(torch.arange(0, size, 2) / size)
    angles = torch.arange(values.shape[1])[:, None] * frequencies
    cosines, sines = (torch.cat([part, part], -1) for part in (angles.cos(), angles.sin()))
    first, second = values.chunk(2, -1)
    return values * cosines + torch.cat([-second, first], -1) * sines


def norm(values: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return the root mean square normalization of values."""
    return weight * values * torch.rsqrt(values.square().mean(-1, keepdim=True) + epsilon)


def vector(weights: dict[str, torch.Tensor], config: Any, ids: list[int]) -> Any:
    """Return the vector of a text by the formulas of Qwen2, with attention to all tokens."""
    states = weights["embed_tokens.weight"][torch.tensor(ids)]
    base, epsilon = config.rope_parameters["rope_theta"], config.rms_norm_eps
    size = config.hidden_size // config.num_attention_heads
    for number in range(config.num_hidden_layers):
        layer = {
            name.removeprefix(f"layers.{number}."): each
            for name, each in weights.items()
            if name.startswith(f"layers.{number}.")
        }
        read = norm(states, layer["input_layernorm.weight"], epsilon)
        heads = {
            kind: (
                read @ layer[f"self_attn.{kind}_proj.weight"].T
                + layer[f"self_attn.{kind}_proj.bias"]
            )
            .unflatten(-1, (-1, size))
            .transpose(0, 1)
            for kind in "qkv"
        }
        shared = config.num_attention_heads // config.num_key_value_heads
        keys, values = (heads[kind].repeat_interleave(shared, 0) for kind in "kv")
        scores = rotated(heads["q"], base) @ rotated(keys, base).transpose(1, 2) / size**0.5
        mixed = (scores.softmax(-1) @ values).transpose(0, 1).flatten(1)
        states = states + mixed @ layer["self_attn.o_proj.weight"].T
        read = norm(states, layer["post_attention_layernorm.weight"], epsilon)
        gate = torch.nn.functional.silu(read @ layer["mlp.gate_proj.weight"].T)
        inner = gate * (read @ layer["mlp.up_proj.weight"].T)
        states = states + inner @ layer["mlp.down_proj.weight"].T
    last = norm(states, weights["norm.weight"], epsilon)[-1]
    return torch.nn.functional.normalize(last, dim=-1).numpy()
