"""A small vision transformer learns to name coloured shapes."""

from __future__ import annotations

from typing import Any

from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

from scripts.kit.demo_models.batches import Feature
from scripts.kit.demo_models.forward import forward
from scripts.kit.demo_models.lessons.base import Lesson
from scripts.kit.demo_models.score import mean
from scripts.kit.demo_models.shapes import LABELS, SIDE, drawn_features, drawn_inputs
from scripts.kit.demo_models.training import Plan

CONFIG = {
    "image_size": SIDE,
    "patch_size": 16,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}


class ImageClassification(Lesson):
    """One shape in one colour."""

    plan = Plan(rows=5000, batch=16, rate=1e-3)
    exam_rows = 300

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a vision transformer with random weights, and its image processor."""
        config = ViTConfig(**CONFIG, id2label=dict(enumerate(LABELS)))
        return ViTForImageClassification(config), ViTImageProcessorPil(
            size={"height": SIDE, "width": SIDE}
        )

    def features(self, tokenizer: Any, rows: int, seed: int) -> list[Feature]:
        """Draw images with their labels."""
        return drawn_features(tokenizer, rows, f"train {seed}")

    def examine(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of images with the right label."""
        exam = drawn_features(tokenizer, rows, f"held out {seed}")
        labels = [row.pop("labels") for row in exam]
        pairs = zip(forward(model, exam), labels, strict=True)
        return {"accuracy": mean(int(out["logits"].argmax()) == label for out, label in pairs)}

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Draw images."""
        return drawn_inputs(rows, seed)


LESSON = ImageClassification()
