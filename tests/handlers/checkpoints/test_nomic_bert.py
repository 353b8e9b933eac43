"""The config of Nomic BERT: the keys of its repositories become the keys of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import NomicBertConfig, NomicBertModel

from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from tests import tiny
from tests.samples import FINE
from tests.sentences import refused
from tests.serving import Served, differences

MODE = "sentence_embedding"
# As in nomic-embed-text-v1.5, with other sizes.
OWN: dict[str, Any] = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "auto_map": {
        "AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig",
        "AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel",
    },
    "activation_function": "swiglu",
    "causal": False,
    "layer_norm_epsilon": 1e-05,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": 32,
    "n_head": 2,
    "n_inner": 64,
    "n_layer": 2,
    "n_positions": 8192,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 10000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "type_vocab_size": 2,
    "use_rms_norm": False,
    "pad_token_id": 0,
}
# As in nomic-embed-text-v2-moe.
EXPERTS = {"num_experts": 8, "moe_top_k": 2, "moe_every_n_layers": 2, "activation_function": "gelu"}


def read(folder: Path, **changed: Any) -> NomicBertConfig:
    (folder / "config.json").write_text(json.dumps({**OWN, **changed}), encoding="utf-8")
    config = Checkpoint.read(folder, HandlerSection(mode=MODE)).config
    assert isinstance(config, NomicBertConfig)
    return config


def test_sizes_and_positions_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (32, 2, 2)
    assert (config.intermediate_size, config.head_dim, config.layer_norm_eps) == (64, 16, 1e-5)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}
    assert config.max_position_embeddings == 8192


def test_scaling_limits_a_text_to_the_length_without_it(tmp_path: Path) -> None:
    assert read(tmp_path, rotary_scaling_factor=2).max_position_embeddings == 2048


@pytest.mark.parametrize(
    "changed", [EXPERTS, {"prenorm": True}, {"rotary_emb_fraction": 0.5}, {"qkv_proj_bias": True}]
)
def test_what_transformers_does_not_compute_is_refused(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    with refused(WrongCheckpoint, "config.json", next(iter(changed))):
        read(tmp_path, **changed)


def test_vectors_are_those_of_the_same_model_by_its_keys_of_transformers(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tiny.write(folder, MODE)
    own = {"vocab_size": json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = NomicBertConfig(
        **own, **sizes, intermediate_size=64, layer_norm_eps=1e-5, rope_parameters=rope
    )
    NomicBertModel(config).save_pretrained(folder)
    expected = Served(folder, MODE).ask(FINE)
    (folder / "config.json").write_text(json.dumps({**OWN, **own}), encoding="utf-8")
    assert not differences(Served(folder, MODE).ask(FINE), expected, 1e-6)
