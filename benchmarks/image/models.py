"""The model to measure: ViT-base with seeded random weights."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from benchmarks.models import TINY

CLASSES = 1000


def vit_base(target: Path, *, tiny: bool = False) -> Path:
    """Create a model of 86 million parameters for 224 x 224 pixels, unless it exists.

    Returns:
        Its folder.
    """
    if not (target / "config.json").is_file():
        torch.manual_seed(0)
        labels = {number: f"class {number}" for number in range(CLASSES)}
        model = ViTForImageClassification(ViTConfig(**(TINY if tiny else {}), id2label=labels))
        # A larger spread than for training, so that different images get different answers.
        torch.nn.init.normal_(model.classifier.weight, std=0.5)
        ViTImageProcessorPil().save_pretrained(target)
        model.save_pretrained(target)
    return target
