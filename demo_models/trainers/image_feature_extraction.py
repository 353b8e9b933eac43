"""A small vision transformer learns to name coloured shapes; its pooler makes vectors of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import ViTConfig, ViTImageProcessorPil, ViTModel
from transformers.utils import ModelOutput

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_images import LABELS, SIDE
from hf_serve.demo_models.trainers.base import ImageTrainer
from hf_serve.demo_models.trainers.image_classification import CONFIG
from hf_serve.demo_models.training import Plan, forward


class NamedVectors(nn.Module):
    """A model of images with a layer on its vectors that names shapes, for training alone."""

    def __init__(self, model: ViTModel) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.names = nn.Linear(model.config.pooler_output_size, len(LABELS))

    def forward(self, pixel_values: Tensor, labels: Tensor) -> ModelOutput:
        """Return the loss of a batch."""
        logits = self.names(self.model(pixel_values=pixel_values).pooler_output)
        return ModelOutput(loss=nn.functional.cross_entropy(logits, labels))

    def save_pretrained(self, folder: Path) -> None:
        """Write the model of images alone."""
        self.model.save_pretrained(folder)


class ImageFeatureExtraction(ImageTrainer):
    """Images of the same shape and colour get similar vectors."""

    plan = Plan(rows=5000, batch=16, rate=1e-3)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a vision transformer with random weights, and its image processor."""
        model = NamedVectors(ViTModel(ViTConfig(**CONFIG, pooler_output_size=32)))
        return model, ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of images whose most similar other image has the same label."""
        held_out, numbers = self.without_labels(tokenizer, rows, seed)
        labels = torch.tensor(numbers)
        vectors = torch.stack([out["pooler_output"] for out in forward(model.model, held_out)])
        vectors = nn.functional.normalize(vectors, dim=1)
        nearest = (vectors @ vectors.T - 2 * torch.eye(len(held_out))).argmax(dim=1)
        return {"same label": mean((labels == labels[nearest]).tolist())}


TRAINER = ImageFeatureExtraction()
