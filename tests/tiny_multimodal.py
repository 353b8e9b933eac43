"""Tiny checkpoints of models that read images and texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BlipConfig,
    BlipForQuestionAnswering,
    BlipImageProcessorPil,
    PreTrainedConfig,
    ViltConfig,
    ViltForQuestionAnswering,
    ViltImageProcessorPil,
)

from tests.tiny_tokenizers import write_bert

LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2}
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, **LAYERS}
ANSWERS = ("yes", "no", "a square", "a circle", "red", "blue", "two")


def write_vilt(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a model that chooses among seven answers, for images of about 32 pixels a side."""
    tokens = write_bert(folder)
    ViltImageProcessorPil(size={"shortest_edge": 32}, size_divisor=8).save_pretrained(folder)
    sizes = {**SIZES, "image_size": 32, "patch_size": 8, "max_position_embeddings": 40}
    names = {"id2label": dict(enumerate(ANSWERS))}
    config = ViltConfig(**{**sizes, **tokens, **names, **values})
    _save(folder, ViltForQuestionAnswering, config, seed)


def write_blip(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a model that generates its answers, for images of 32 x 32 pixels."""
    tokens = write_bert(folder)
    BlipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    ends = {"bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3, "is_decoder": True}
    text = {**SIZES, **tokens, **ends, "encoder_hidden_size": 32, "max_position_embeddings": 64}
    vision = {**SIZES, "image_size": 32, "patch_size": 8}
    config = BlipConfig(text_config=text, vision_config=vision, projection_dim=16, **values)
    _save(folder, BlipForQuestionAnswering, config, seed)


def _save(folder: Path, kind: Any, config: PreTrainedConfig, seed: int) -> None:
    """Write a model with weights by which different inputs have different outputs."""
    torch.manual_seed(seed)
    model = kind(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.uniform_(-0.8, 0.8)
    model.save_pretrained(folder)
