"""The test cases of mask generation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import SamConfig, SamModel
from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil

from tests.modes._cases import ModeCases
from tests.modes.image_classification import IMAGES, drawn_for

SIDE = {"image_size": 64, "patch_size": 8}
SIZES: dict[str, Any] = {
    "vision_config": {
        **SIDE,
        "hidden_size": 32,
        "output_channels": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "mlp_dim": 64,
        "num_pos_feats": 16,
        "window_size": 0,
        "global_attn_indexes": [0],
    },
    "prompt_encoder_config": {**SIDE, "hidden_size": 32, "mask_input_channels": 4},
    "mask_decoder_config": {
        "hidden_size": 32,
        "mlp_dim": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 32,
    },
}


def write(folder: Path, config: Mapping[str, Any], seed: int) -> None:
    """Write a SAM for images of 64 pixels a side, whose scores lie around 0.5."""
    torch.manual_seed(seed)
    model = SamModel(SamConfig(**{**SIZES, **config}))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
        model.mask_decoder.iou_prediction_head.proj_out.bias.fill_(0.5)
    model.save_pretrained(folder)
    side = {"height": 64, "width": 64}
    SamImageProcessorPil(size={"longest_edge": 64}, pad_size=side).save_pretrained(folder)


# The pipeline ends at the last batch only where that is full.
FEW = {
    "points_per_crop": 2,
    "points_per_batch": 4,
    "pred_iou_thresh": 0.0,
    "stability_score_thresh": 0.0,
}
CASES = ModeCases(
    inputs=IMAGES,
    parameters=[
        {**FEW, "crops_nms_thresh": 0.99, "output_bboxes_mask": True},
        {**FEW, "points_per_batch": 2, "mask_threshold": 2.0, "pred_iou_thresh": 0.4},
        {**FEW, "stability_score_thresh": 0.3, "stability_score_offset": 0.2},
    ],
    brief=FEW,
    rows=IMAGES,
    with_text=drawn_for,
    tensor="image",
    settings={"parameters": FEW},
    write=write,
)
