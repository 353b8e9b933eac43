"""Tiny vision models of several families, with random weights and image processors of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    BlipImageProcessorPil,
    DetrConfig,
    Dinov2Config,
    ResNetConfig,
    RTDetrResNetConfig,
)
from transformers.image_processing_utils import BaseImageProcessor
from transformers.models.beit.image_processing_pil_beit import BeitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil
from transformers.models.dpt.image_processing_pil_dpt import DPTImageProcessorPil
from transformers.models.mask2former.image_processing_pil_mask2former import (
    Mask2FormerImageProcessorPil,
)
from transformers.models.maskformer.image_processing_pil_maskformer import (
    MaskFormerImageProcessorPil,
)
from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.tiny_tokenizers import write_bert, write_siglip

LABELS = dict(enumerate(("circle", "square", "triangle")))
SQUARE = {"height": 32, "width": 32}
LARGER = {"height": 64, "width": 64}
LAYERS = {"num_hidden_layers": 4, "num_attention_heads": 2}
VIT = {"hidden_size": 32, "intermediate_size": 64, "image_size": 32, "patch_size": 8, **LAYERS}
CONVOLUTIONS = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
RESNET = {"embedding_size": 8, "layer_type": "basic", **CONVOLUTIONS}
PYRAMID = {"neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 8}
DETECTOR = {
    "d_model": 32,
    "num_queries": 6,
    **{f"{part}_layers": 1 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 32 for part in ("encoder", "decoder")},
}
RT_DETR = {
    "encoder_hidden_dim": 32,
    "encoder_in_channels": [8, 16, 16],
    "decoder_in_channels": [32, 32, 32],
    **DETECTOR,
}
STAGES = {"out_features": ["stage1", "stage2", "stage3", "stage4"]}
# The ids of `tests.tiny_tokenizers.write_bert`.
BERT_TEXT = {
    "vocab_size": 217,
    "hidden_size": 32,
    "intermediate_size": 64,
    "bos_token_id": 2,
    "eos_token_id": 3,
    **LAYERS,
}
BLIP_TEXT = {**BERT_TEXT, "sep_token_id": 3, "pad_token_id": 0}
SIGLIP_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "projection_size": 32,
    "max_position_embeddings": 64,
    **LAYERS,
}
Family = tuple[str, dict[str, Any], BaseImageProcessor]
# The mode of each model, the values of its config, and its image processor.
FAMILIES: dict[str, Family] = {
    "ConvNextForImageClassification": (
        "image_classification",
        {**CONVOLUTIONS, "num_stages": 4},
        ConvNextImageProcessorPil(size={"shortest_edge": 32}),
    ),
    "DeiTForImageClassification": (
        "image_classification",
        VIT,
        ViTImageProcessorPil(size=SQUARE),
    ),
    "ResNetForImageClassification": (
        "image_classification",
        RESNET,
        ConvNextImageProcessorPil(size={"shortest_edge": 32}),
    ),
    "Dinov2Model": ("image_feature_extraction", VIT, ViTImageProcessorPil(size=SQUARE)),
    "DetrForObjectDetection": (
        "object_detection",
        {**DETECTOR, "backbone_config": ResNetConfig(**RESNET, **STAGES)},
        DetrImageProcessorPil(size={"shortest_edge": 32, "longest_edge": 64}),
    ),
    "RTDetrForObjectDetection": (
        "object_detection",
        {
            **RT_DETR,
            "backbone_config": RTDetrResNetConfig(
                **RESNET, out_features=["stage2", "stage3", "stage4"]
            ),
        },
        RTDetrImageProcessorPil(size=LARGER),
    ),
    "DetrForSegmentation": (
        "image_segmentation",
        {
            **DETECTOR,
            # The head of masks needs numbers of channels that groups of 8 divide.
            "d_model": 128,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
            "backbone_config": ResNetConfig(**RESNET, **STAGES),
        },
        DetrImageProcessorPil(size={"shortest_edge": 32, "longest_edge": 64}),
    ),
    "MaskFormerForInstanceSegmentation": (
        "image_segmentation",
        {
            "backbone_config": ResNetConfig(**RESNET, **STAGES),
            "decoder_config": DetrConfig(**DETECTOR),
            "fpn_feature_size": 32,
            "mask_feature_size": 32,
        },
        MaskFormerImageProcessorPil(size=LARGER, size_divisor=0),
    ),
    "Mask2FormerForUniversalSegmentation": (
        "image_segmentation",
        {
            "backbone_config": ResNetConfig(**RESNET, **STAGES),
            "feature_size": 32,
            "mask_feature_size": 32,
            "hidden_dim": 32,
            "encoder_feedforward_dim": 32,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "num_attention_heads": 2,
            "dim_feedforward": 32,
            "num_queries": 6,
        },
        Mask2FormerImageProcessorPil(size=LARGER, size_divisor=0),
    ),
    "BeitForSemanticSegmentation": (
        "image_segmentation",
        {**VIT, "out_indices": [0, 1, 2, 3]},
        BeitImageProcessorPil(size=SQUARE, do_center_crop=False),
    ),
    "BlipForConditionalGeneration": (
        "image_to_text",
        {"vision_config": VIT, "text_config": {**BLIP_TEXT, "encoder_hidden_size": 32}},
        BlipImageProcessorPil(size=SQUARE),
    ),
    "GitForCausalLM": (
        "image_to_text",
        {**BERT_TEXT, "vision_config": VIT},
        CLIPImageProcessorPil(size=32, crop_size=SQUARE),
    ),
    "SiglipModel": (
        "zero_shot_image_classification",
        {"vision_config": VIT, "text_config": SIGLIP_TEXT},
        SiglipImageProcessorPil(size=SQUARE),
    ),
    "DPTForDepthEstimation": (
        "depth_estimation",
        {**VIT, **PYRAMID, "backbone_out_indices": [0, 1, 2, 3]},
        DPTImageProcessorPil(size=SQUARE),
    ),
    "DepthAnythingForDepthEstimation": (
        "depth_estimation",
        {
            **PYRAMID,
            "patch_size": 8,
            "depth_estimation_type": "metric",
            "max_depth": 10,
            "reassemble_hidden_size": 32,
            "backbone_config": Dinov2Config(**VIT, **STAGES, reshape_hidden_states=False),
        },
        DPTImageProcessorPil(size=SQUARE, keep_aspect_ratio=True, ensure_multiple_of=8),
    ),
}
# Those whose image processor keeps the proportions of an image.
FREE_SIZES = (
    "DetrForObjectDetection",
    "DetrForSegmentation",
    "DepthAnythingForDepthEstimation",
)
# The sets of parameters with which a family answers; one without any for the others.
SEGMENTED: list[dict[str, Any]] = [{"threshold": 0.2}, {"subtask": "semantic"}]
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "DetrForObjectDetection": [{"threshold": 0.0}],
    "RTDetrForObjectDetection": [{"threshold": 0.0}],
    "DetrForSegmentation": SEGMENTED,
    "MaskFormerForInstanceSegmentation": SEGMENTED,
    "Mask2FormerForUniversalSegmentation": [
        *SEGMENTED,
        {"subtask": "instance", "threshold": 0.1, "mask_threshold": 0.4},
    ],
}
# Those that read or write texts, too, with what writes their tokenizer.
TOKENIZERS: dict[str, Callable[[Path], object]] = {
    "BlipForConditionalGeneration": write_bert,
    "GitForCausalLM": write_bert,
    "SiglipModel": write_siglip,
}
NAMED = ("Classification", "Detection", "Segmentation")


def mode_of(family: str) -> str:
    """Return the mode that serves a model."""
    return FAMILIES[family][0]


def write(folder: Path, family: str) -> Path:
    """Write a checkpoint of a model, with the same weights each time."""
    torch.manual_seed(3)
    _, values, processor = FAMILIES[family]
    kind = getattr(transformers, family)
    names = {"id2label": LABELS} if any(each in family for each in NAMED) else {}
    if write_tokenizer := TOKENIZERS.get(family):
        folder.mkdir()
        write_tokenizer(folder)
    model = kind(kind.config_class(**values, **names))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
