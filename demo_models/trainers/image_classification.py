"""A small vision transformer learns to name coloured shapes."""

from __future__ import annotations

from typing import Any

from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

from hf_serve.demo_models.synthetic_images import LABELS, SIDE
from hf_serve.demo_models.trainers.base import ImageTrainer
from hf_serve.demo_models.training import Plan, accuracy

CONFIG = {
    "image_size": SIDE,
    "patch_size": 16,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}


class ImageClassification(ImageTrainer):
    """One shape in one colour."""

    plan = Plan(rows=5000, batch=16, rate=1e-3)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a vision transformer with random weights, and its image processor."""
        config = ViTConfig(**CONFIG, id2label=dict(enumerate(LABELS)))
        return ViTForImageClassification(config), ViTImageProcessorPil(
            size={"height": SIDE, "width": SIDE}
        )

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of images with the right label."""
        return {"accuracy": accuracy(model, self.held_out(tokenizer, rows, seed))}


TRAINER = ImageClassification()
