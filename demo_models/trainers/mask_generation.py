"""A small SAM learns the mask of the coloured shape that a point lies on."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import SamConfig, SamImageProcessorPil, SamModel
from transformers.utils import ModelOutput

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_images import SIDE, draw, pixels_of
from hf_serve.demo_models.trainers.base import ImageTrainer
from hf_serve.demo_models.training import Feature, Plan, chunks, collate

# A model sees twice the pixels of an image, and its masks have half of these.
SEEN = 2 * SIDE
PARTS = {"image_size": SEEN, "patch_size": 8}
CONFIG: dict[str, Any] = {
    "vision_config": {
        **PARTS,
        "hidden_size": 64,
        "output_channels": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "mlp_dim": 128,
        "num_pos_feats": 16,
        "window_size": 0,
        "global_attn_indexes": [0, 1],
    },
    "prompt_encoder_config": {**PARTS, "hidden_size": 32, "mask_input_channels": 4},
    "mask_decoder_config": {
        "hidden_size": 32,
        "mlp_dim": 64,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 32,
    },
}
EVALUATION_BATCH = 50


class Prompted(nn.Module):
    """A model of masks with the masks that it should find, for training alone."""

    def __init__(self, model: SamModel) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, labels: Tensor, **inputs: Tensor) -> ModelOutput:
        """Return the loss of a batch: of the best mask for each point, and of the scores of all."""
        outputs = self.model(**inputs)
        masks = outputs.pred_masks[:, 0]
        expected = labels[:, None].expand_as(masks).float()
        losses = nn.functional.binary_cross_entropy_with_logits(masks, expected, reduction="none")
        best = losses.mean((-1, -2)).min(dim=1).values.mean()
        scores = nn.functional.mse_loss(outputs.iou_scores[:, 0], _overlaps(masks, expected))
        return ModelOutput(loss=best + scores)

    def save_pretrained(self, folder: Path) -> None:
        """Write the model of masks."""
        self.model.save_pretrained(folder)


class MaskGeneration(ImageTrainer):
    """One shape in one colour, and a point on it or next to it."""

    plan = Plan(rows=4800, batch=16, rate=1e-3)
    evaluation_rows = 100

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a SAM with random weights, and its image processor."""
        side = {"height": SEEN, "width": SEEN}
        processor = SamImageProcessorPil(size={"longest_edge": SEEN}, pad_size=side)
        return Prompted(SamModel(SamConfig(**CONFIG))), processor

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Draw images with a point and the mask of what lies there."""
        rng = Random(seed)
        return [_feature(processor, rng) for _ in range(count)]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the overlap of the mask with the highest score and what lies at a point."""
        parts = chunks(self.held_out(tokenizer, rows, seed), EVALUATION_BATCH)
        overlaps = (_best_overlaps(model.model, collate(part, None)) for part in parts)
        return {"overlap": mean(each for part in overlaps for each in part)}


@torch.inference_mode()
def _best_overlaps(model: SamModel, batch: dict[str, Any]) -> list[float]:
    expected = batch.pop("labels")[:, None]
    outputs = model(**batch)
    masks, scores = outputs.pred_masks[:, 0], outputs.iou_scores[:, 0]
    found = _overlaps(masks, expected.expand_as(masks))
    return [float(row[number]) for row, number in zip(found, scores.argmax(1), strict=True)]


def _overlaps(masks: Tensor, expected: Tensor) -> Tensor:
    """Return the share of each mask and the expected one together that they have in common."""
    found, drawn = masks > 0, expected > 0
    return (found & drawn).sum((-1, -2)) / (found | drawn).sum((-1, -2)).clamp(min=1)


def _feature(processor: Any, rng: Random) -> Feature:
    scene = draw(rng)
    shape = pixels_of(scene)
    on_shape = rng.random() < 0.7
    y, x = rng.choice(np.argwhere(shape == on_shape).tolist())
    scale = SEEN / SIDE
    return {
        "pixel_values": processor(images=scene.image, return_tensors="pt")["pixel_values"][0],
        "input_points": torch.tensor([[[(x + 0.5) * scale, (y + 0.5) * scale]]]),
        "input_labels": torch.ones(1, 1, dtype=torch.int64),
        "labels": torch.from_numpy(shape == on_shape),
    }


TRAINER = MaskGeneration()
