"""The config of Nomic BERT: the keys of its repositories become the keys of transformers.

`nomic-ai/nomic-embed-text-v1.5` and its kind name their sizes as GPT-2 does. transformers' class
has sizes of other names, and would take its defaults for them:

    n_embd, n_layer, n_head, n_inner      the sizes
    layer_norm_epsilon
    rotary_emb_base                       the base of the rotary embedding
    n_positions, max_trained_positions    the longest text, and the longest one of the training
    rotary_scaling_factor                 scales the rotary embedding of texts beyond the training

Source of the keys: the config.json of these repositories, `NomicBertConfig` of their code. Keys
that change the computation in a way that transformers' class does not have are refused, such as the
experts of `nomic-embed-text-v2-moe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig

from ..config.messages import quote
from ..errors import WrongCheckpoint

MODEL_TYPE = "nomic_bert"
# The names of transformers by the names of the repositories.
SIZES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
}
# The values that transformers' class computes, of keys that it does not have.
COMPUTED: Mapping[str, tuple[Any, ...]] = {
    "num_experts": (0, 1),
    "moe_every_n_layers": (0,),
    "activation_function": ("swiglu",),
    "prenorm": (False,),
    "parallel_block": (False,),
    "causal": (False,),
    "use_rms_norm": (False,),
    "qkv_proj_bias": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "rotary_emb_fraction": (1,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
}


def is_translated(config: PreTrainedConfig) -> bool:
    """Return whether a config has the keys of the repositories."""
    return config.model_type == MODEL_TYPE and hasattr(config, "n_embd")


def translate(config: PreTrainedConfig) -> None:
    """Give a config the keys of transformers, where it has the keys of the repositories.

    Raises:
        WrongCheckpoint: transformers' class computes something else.
    """
    if not is_translated(config):
        return
    for name, values in COMPUTED.items():
        found = getattr(config, name, None)
        if found is not None and found not in values:
            raise WrongCheckpoint(
                "config.json",
                f"has {name} {quote(found)}, which transformers' {MODEL_TYPE} does not compute",
                "use nomic-ai/nomic-embed-text-v1.5 or another checkpoint without it",
            )
    for name, own in SIZES.items():
        if getattr(config, name, None) is not None:
            setattr(config, own, getattr(config, name))
    config.head_dim = config.hidden_size // config.num_attention_heads
    base = getattr(config, "rotary_emb_base", None)
    if base is not None:
        config.rope_parameters = {"rope_type": "default", "rope_theta": float(base)}
    config.max_position_embeddings = _positions(config)


def _positions(config: PreTrainedConfig) -> int:
    """Return the length of a text up to which no scaling changes the rotary embedding."""
    is_scaled = getattr(config, "rotary_scaling_factor", None) not in (None, 0, 1)
    name = "max_trained_positions" if is_scaled else "n_positions"
    return int(getattr(config, name, None) or config.max_position_embeddings)
