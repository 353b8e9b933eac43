"""A small SegFormer learns which pixels a coloured shape has."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import SegformerConfig, SegformerForSemanticSegmentation

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_images import LABELS, SIDE, Scene, draw, pixels_of
from hf_serve.demo_models.trainers.base import ImageTrainer
from hf_serve.demo_models.trainers.depth_estimation import CONFIG
from hf_serve.demo_models.training import Feature, Plan, forward
from hf_serve.handlers.compat.transformers import pillow_processor

# A model sees twice the pixels of an image: its masks have a quarter of the side.
SEEN = 2 * SIDE
CLASSES = ("background", *LABELS)


class ImageSegmentation(ImageTrainer):
    """One shape in one colour, and its background."""

    plan = Plan(rows=3200, batch=16, rate=2e-3)
    evaluation_rows = 100

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a SegFormer with random weights, and its image processor."""
        config = SegformerConfig(**CONFIG, id2label=dict(enumerate(CLASSES)))
        kind = pillow_processor("SegformerImageProcessorPil")
        processor = kind(size={"height": SEEN, "width": SEEN})
        return SegformerForSemanticSegmentation(config), processor

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Draw images with the classes of their pixels."""
        rng = Random(seed)
        return [_feature(processor, draw(rng)) for _ in range(count)]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the overlap of the found shapes with the drawn ones, for the right label."""
        held_out, classes = self.without_labels(tokenizer, rows, seed)
        pairs = zip(forward(model, held_out), classes, strict=True)
        return {"overlap": mean(_overlap(out["logits"], expected) for out, expected in pairs)}


def _feature(processor: Any, scene: Scene) -> Feature:
    pixels = processor(images=scene.image, return_tensors="pt")["pixel_values"][0]
    classes = np.where(pixels_of(scene), CLASSES.index(scene.label), 0)
    return {"pixel_values": pixels, "labels": torch.from_numpy(classes)}


def _overlap(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the share of two masks of a shape together that they have in common."""
    size = tuple(expected.shape)
    scaled = functional.interpolate(logits[None], size=size, mode="bilinear")[0]
    drawn, found = expected > 0, scaled.argmax(0) == expected.max()
    return float((drawn & found).sum() / (drawn | found).sum())


TRAINER = ImageSegmentation()
