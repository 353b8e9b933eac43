"""The sizes of the tiny checkpoints of the catalogue, by the keys of a config."""

from __future__ import annotations

from typing import Any

from tests.family_sizes import SIZES as OF_FAMILIES
from tests.family_sizes import VALUES as OF_EACH_FAMILY
from tests.tiny_vits import SIZES as VITS_SIZES

SIZES: dict[str, Any] = {
    **{key: size for key, size in OF_FAMILIES.items() if not key.endswith("_token_id")},
    "n_inner": 64,
    "d_kv": 16,
    "num_decoder_layers": 2,
    "num_layers": 2,
    "n_positions": 512,
    "image_text_hidden_size": 32,
    "encoder_hidden_size": 32,
    "projection_size": 32,
    "query_pre_attn_scalar": 16,
    "rotary_dim": 16,
    "pooler_hidden_size": 32,
    "max_window_layers": 4,
}
PYRAMID: dict[str, Any] = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16]}
VIT: dict[str, Any] = {"image_size": 32, "patch_size": 8, "num_hidden_layers": 2}
SWIN: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 1, 2, 2],
    "hidden_size": 64,
    "window_size": 2,
    "num_layers": 4,
}
DETECTOR: dict[str, Any] = {
    "num_queries": 6,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "num_hidden_layers": 1,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}
SAM: dict[str, Any] = {
    "image_size": 64,
    "patch_size": 8,
    "hidden_size": 32,
    "image_embedding_size": 8,
    "mask_input_channels": 4,
    "mlp_dim": 64,
    "num_hidden_layers": 1,
    "iou_head_hidden_dim": 32,
    "num_pos_feats": 16,
    "output_channels": 32,
    "window_size": 0,
    "global_attn_indexes": [0],
}
WAVES: dict[str, Any] = {
    "conv_dim": [16, 16],
    "conv_kernel": [10, 8],
    "conv_stride": [8, 8],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 16,
    "num_hidden_layers": 2,
}
# Sizes of a family that are not those; a part of a config without a name has those of its parent.
VALUES: dict[str, dict[str, Any]] = {
    **OF_EACH_FAMILY,
    "audio-spectrogram-transformer": {"max_length": 48, "num_mel_bins": 32, "num_hidden_layers": 2},
    "blip_vision_model": VIT,
    "clip": {"projection_dim": 32},
    "clip_text_model": {"projection_dim": 32},
    "clip_vision_model": {**VIT, "projection_dim": 32},
    "convnext": {**PYRAMID, "image_size": 32},
    "moonshine": {
        **{f"{part}_num_hidden_layers": 2 for part in ("encoder", "decoder")},
        **{f"{part}_num_attention_heads": 2 for part in ("encoder", "decoder")},
        **{f"{part}_num_key_value_heads": 2 for part in ("encoder", "decoder")},
    },
    "mm-grounding-dino": {**DETECTOR, "decoder_layers": 2},
    "modernvbert": {"pixel_shuffle_factor": 2},
    "paligemma": {"projection_dim": 32},
    # Texts of more than 64 tokens have the long factors.
    "phi3": {
        "original_max_position_embeddings": 64,
        "rope_scaling": {
            "long_factor": [1.0, 1.25, 1.75, 2.5, 4.0, 8.0],
            "short_factor": [1.0] * 6,
            "type": "longrope",
        },
    },
    "qwen2_vl": {
        "depth": 1,
        "embed_dim": 32,
        "num_key_value_heads": 2,
        "rope_scaling": {"mrope_section": [2, 3, 3], "rope_type": "default", "type": "default"},
    },
    "qwen2_5_vl": {
        "depth": 2,
        "fullatt_block_indexes": [1],
        "num_key_value_heads": 2,
        "out_hidden_size": 32,
        "rope_scaling": {"mrope_section": [2, 3, 3], "rope_type": "default", "type": "default"},
    },
    "qwen3_vl": {
        "deepstack_visual_indexes": [0, 1],
        "depth": 2,
        "num_position_embeddings": 16,
        "out_hidden_size": 32,
    },
    "qwen3_vl_text": {
        "rope_scaling": {
            "mrope_interleaved": True,
            "mrope_section": [2, 3, 3],
            "rope_type": "default",
        },
    },
    "gemma3": {"mm_tokens_per_image": 16},
    "internvl": {"image_seq_length": 16},
    "internvl_vision": {**VIT, "image_size": [32, 32], "patch_size": [4, 4]},
    "lfm2": {"block_ff_dim": 64, "block_dim": 32, "conv_dim": 32, "conv_dim_out": 32},
    "granitemoehybrid": {
        "mamba_chunk_size": 16,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
        "mamba_n_heads": 4,
        "num_experts_per_tok": 0,
        "num_local_experts": 0,
        "shared_intermediate_size": 64,
    },
    # The name of a part of the config, too.
    "idefics3": {**VIT, "scale_factor": 2},
    "deberta-v2": {"position_buckets": 16},
    "depth_anything": {
        "patch_size": 8,
        "neck_hidden_sizes": [8, 8, 16, 16],
        "fusion_hidden_size": 8,
        "head_hidden_size": 8,
        "reassemble_hidden_size": 32,
    },
    "detr": DETECTOR,
    "dinov2": {
        "image_size": 32,
        "patch_size": 8,
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
        "out_indices": [1, 2, 3, 4],
    },
    "donut-swin": {**SWIN, "image_size": [32, 32]},
    "grounding-dino": {**DETECTOR, "decoder_layers": 2},
    "hubert": WAVES,
    "mask2former": {
        "feature_size": 32,
        "mask_feature_size": 32,
        "hidden_dim": 32,
        "encoder_feedforward_dim": 32,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "dim_feedforward": 32,
        "num_queries": 6,
    },
    "owlv2": {"projection_dim": 32},
    "owlv2_text_model": {"max_position_embeddings": 16},
    "owlv2_vision_model": VIT,
    "owlvit": {"projection_dim": 32},
    "owlvit_text_model": {"max_position_embeddings": 16},
    "owlvit_vision_model": VIT,
    "resnet": {**PYRAMID, "embedding_size": 8},
    "rt_detr": {
        **DETECTOR,
        "encoder_hidden_dim": 32,
        "encoder_in_channels": [8, 16, 16],
        "decoder_in_channels": [32, 32, 32],
    },
    "rt_detr_resnet": {**PYRAMID, "embedding_size": 8},
    "sam": SAM,
    "": SAM,
    "segformer": {
        **PYRAMID,
        "num_attention_heads": [1, 2, 2, 2],
        "decoder_hidden_size": 16,
        "image_size": 32,
    },
    "siglip_vision_model": VIT,
    "siglip_text_model": {"max_position_embeddings": 64},
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
    "swin": SWIN,
    "trocr": {
        "cross_attention_hidden_size": 32,
        "decoder_layers": 2,
        "max_position_embeddings": 64,
    },
    "mbart": {"decoder_layers": 2, "max_position_embeddings": 128},
    "vilt": {"image_size": 32, "patch_size": 8, "max_position_embeddings": 40},
    "vit": VIT,
    "vits": {**VITS_SIZES},
    "wav2vec2": WAVES,
    "whisper": {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "num_mel_bins": 20,
        "max_source_positions": 100,
        "max_target_positions": 64,
    },
    "yolos": {"image_size": [32, 32], "patch_size": 8, "num_detection_tokens": 5},
}
# Sizes that a published config does not have, or has by another name.
ADDED: dict[str, dict[str, Any]] = {
    "qwen2_vl": {"depth": 1, "embed_dim": 32, "num_heads": 2, "patch_size": 14},
    "nomic_bert": {
        "hidden_size": 32,
        "head_dim": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 64,
        "vocab_size": 400,
    },
}
# Of a preprocessor_config.json, by the keys that a size has.
SQUARE = {"height": 32, "width": 32}
EDGES: dict[str, Any] = {
    "number": 32,
    "height width": SQUARE,
    "shortest_edge": {"shortest_edge": 32},
    "longest_edge": {"longest_edge": 64},
    "longest_edge shortest_edge": {"longest_edge": 12544, "shortest_edge": 3136},
}
SIDE: dict[str, dict[str, Any]] = {
    "size": EDGES,
    "crop_size": EDGES,
    "max_image_size": {"longest_edge": {"longest_edge": 32}},
    "image_seq_len": {"number": 4},
    "image_seq_length": {"number": 16},
    "pad_size": {"height width": {"height": 64, "width": 64}},
    "max_size": {"number": 64},
    "size_divisor": {"number": 8},
    "ensure_multiple_of": {"number": 8},
    "feature_size": {"number": 20},
    "chunk_length": {"number": 2},
    "n_samples": {"number": 32000},
    "nb_max_frames": {"number": 200},
    "max_length": {"number": 48},
    "num_mel_bins": {"number": 32},
}
# An extractor of waveforms has one feature.
SAME = {"feature_size": 1}
