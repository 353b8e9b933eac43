"""A small CLIP learns which description an image of a coloured shape has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel
from transformers.utils import ModelOutput

from hf_serve.demo_models.processors import WORDS, Processors
from hf_serve.demo_models.synthetic_images import (
    LABELS,
    SIDE,
    as_base64,
    drawn_features,
    drawn_scenes,
)
from hf_serve.demo_models.trainers.base import MediaTrainer
from hf_serve.demo_models.trainers.image_classification import CONFIG
from hf_serve.demo_models.training import Feature, Plan

POSITIONS = 77
TEXT = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": POSITIONS,
    "projection_dim": 32,
}


class Described(nn.Module):
    """A model of images and texts, with the description of each label, for training alone."""

    def __init__(self, model: CLIPModel, texts: dict[str, Tensor]) -> None:
        super().__init__()
        self.model, self.texts, self.config = model, texts, model.config

    def forward(self, pixel_values: Tensor, labels: Tensor) -> ModelOutput:
        """Return the loss of a batch."""
        logits = self.model(pixel_values=pixel_values, **self.texts).logits_per_image
        return ModelOutput(loss=nn.functional.cross_entropy(logits, labels))

    def save_pretrained(self, folder: Path) -> None:
        """Write the model of images and texts."""
        self.model.save_pretrained(folder)


class ZeroShotImageClassification(MediaTrainer):
    """One shape in one colour, and a photo of it in words."""

    plan = Plan(rows=4800, batch=16, rate=1e-3)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a CLIP with random weights, and its processors."""
        images = CLIPImageProcessorPil(size=SIDE, crop_size=SIDE)
        processors = Processors.with_words(images, POSITIONS)
        tokenizer = processors.tokenizer
        ends = {
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        vision = {**CONFIG, "projection_dim": 32}
        config = CLIPConfig(text_config={**TEXT, **ends}, vision_config=vision, projection_dim=32)
        texts = tokenizer(
            [f"This is a photo of {label}." for label in LABELS], padding=True, return_tensors="pt"
        )
        names = ("input_ids", "attention_mask")
        return Described(CLIPModel(config), {name: texts[name] for name in names}), processors

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Draw images with the numbers of their labels."""
        return drawn_features(processor.images, count, seed)

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of images whose best description is their own."""
        held_out = self.held_out(tokenizer, rows, seed)
        pixels = torch.stack([row["pixel_values"] for row in held_out])
        with torch.inference_mode():
            logits = model.model(pixel_values=pixels, **model.texts).logits_per_image
        labels = torch.tensor([row["labels"] for row in held_out])
        return {"accuracy": float((logits.argmax(1) == labels).float().mean())}

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Draw images, each with all labels."""
        return [
            {"image": as_base64(scene.image), "candidate_labels": list(LABELS)}
            for scene in drawn_scenes(rows, f"calibration {seed}")
        ]


TRAINER = ZeroShotImageClassification()
