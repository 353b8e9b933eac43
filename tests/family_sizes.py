"""Small sizes of the families of transformers, by the keys of their configs."""

from __future__ import annotations

from typing import Any

VOCABULARY, POSITIONS = 100, 512
# Families name the same size differently; each takes the names that it has.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 4),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("intermediate_size", "d_ff", "hidden_dim", "ffn_dim", "d_inner"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), POSITIONS),
    **dict.fromkeys(("sliding_window", "attention_window", "block_size"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("n_group", "topk_group", "num_experts_per_tok"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    "local_attention": 32,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}


# Values that a family needs beside the sizes; None leaves a size out.
VALUES: dict[str, dict[str, Any]] = {
    "diffllama": {"num_key_value_heads": 2},
    "esmc": {"num_key_value_heads": 2},
    "falcon": {"head_dim": None},
    "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1, 1]},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 16},
    "gptj": {"rotary_dim": 8},
    "lilt": {"hidden_size": 48},
    "luke": {"entity_vocab_size": 10},
    "perceiver": {"num_latents": 8, "d_latents": 32, "d_model": 32},
    "mamba2": {"head_dim": 8, "num_heads": 8, "n_groups": 2, "chunk_size": 16, "state_size": 16},
    "bamba": {
        "mamba_d_head": 16,
        "mamba_n_heads": 4,
        "mamba_chunk_size": 16,
        "attn_layer_indices": [1],
    },
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2},
    "reformer": {
        "attn_layers": [
            "local",
            "local",
        ],  # the other kind hashes with new random numbers each time
        "axial_pos_shape": [16, 32],
        "axial_pos_embds_dim": [16, 16],
    },
    "roc_bert": {
        "pronunciation_vocab_size": 100,
        "shape_vocab_size": 100,
        "pronunciation_embed_dim": 32,
        "shape_embed_dim": 32,
    },
    "t5": {"decoder_start_token_id": 0},
    "xlnet": {"max_position_embeddings": None},
    "zamba2": {"num_hidden_layers": None},
    "xmod": {"default_language": "en_XX"},
}
