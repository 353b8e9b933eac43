"""A small GLPN learns how far away a shape in the fog is."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import GLPNConfig, GLPNForDepthEstimation, GLPNImageProcessorPil

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_images import CALIBRATION_ROWS, as_base64, draw_in_fog
from hf_serve.demo_models.trainers.base import MediaTrainer
from hf_serve.demo_models.training import Feature, Plan, forward

CONFIG = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [16, 32, 48, 64],
    "num_attention_heads": [1, 2, 2, 4],
    "decoder_hidden_size": 32,
}


class DepthEstimation(MediaTrainer):
    """Two dark shapes, which are paler the further away they are."""

    plan = Plan(rows=9600, batch=16, rate=2e-3)
    evaluation_rows = 100

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a GLPN with random weights, and its image processor."""
        return GLPNForDepthEstimation(GLPNConfig(**CONFIG)), GLPNImageProcessorPil()

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Draw images with the depths of their pixels."""
        rng = Random(seed)
        return [_feature(processor, *draw_in_fog(rng)) for _ in range(count)]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of pixels whose depth is within a quarter of the true one."""
        held_out, depths = self.without_labels(tokenizer, rows, seed)
        pairs = zip(forward(model, held_out), depths, strict=True)
        return {
            "within 1.25": mean(_accuracy(out["predicted_depth"], depth) for out, depth in pairs)
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Draw images."""
        rng = Random(f"calibration {seed}")
        return [as_base64(draw_in_fog(rng)[0]) for _ in range(min(rows, CALIBRATION_ROWS))]


def _feature(processor: Any, image: Image.Image, depth: np.ndarray[Any, Any]) -> Feature:
    pixels = processor(images=image, return_tensors="pt")["pixel_values"][0]
    return {"pixel_values": pixels, "labels": torch.from_numpy(depth)}


def _accuracy(found: torch.Tensor, depth: torch.Tensor) -> float:
    """Return the share of depths within a factor of 1.25, the δ1 of Eigen et al. (2014)."""
    found = found.clamp(min=1e-3)
    return float((torch.maximum(found / depth, depth / found) < 1.25).float().mean())


TRAINER = DepthEstimation()
