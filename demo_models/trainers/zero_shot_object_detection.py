"""A small OWLv2 learns which patch of an image has the shape of a description, and its box."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Owlv2Config, Owlv2ForObjectDetection, Owlv2ImageProcessorPil
from transformers.utils import ModelOutput

from hf_serve.demo_models.processors import Processors
from hf_serve.demo_models.synthetic_images import LABELS, SIDE, Scene, as_base64, draw, drawn_scenes
from hf_serve.demo_models.trainers.base import MediaTrainer
from hf_serve.demo_models.trainers.image_classification import CONFIG
from hf_serve.demo_models.trainers.zero_shot_image_classification import TEXT
from hf_serve.demo_models.training import Feature, Plan

POSITIONS = 16
PATCH = 8
ACROSS = SIDE // PATCH
# Of all patches of an image, for each label, one has a shape.
WEIGHT_OF_SHAPES = 16.0


class Finder(nn.Module):
    """A model of images and texts, with the description of each label, for training alone."""

    def __init__(self, model: Owlv2ForObjectDetection, texts: dict[str, Tensor]) -> None:
        super().__init__()
        self.model, self.texts, self.config = model, texts, model.config

    def outputs(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of each patch for each label, and the box of each patch."""
        texts = {name: ids.repeat(len(pixel_values), 1) for name, ids in self.texts.items()}
        found = self.model(pixel_values=pixel_values, **texts)
        return found.logits, found.pred_boxes

    def forward(
        self, pixel_values: Tensor, labels: Tensor, patches: Tensor, boxes: Tensor
    ) -> ModelOutput:
        """Return the loss of a batch."""
        logits, found = self.outputs(pixel_values)
        rows = torch.arange(len(logits))
        wanted = torch.zeros_like(logits)
        wanted[rows, patches, labels] = 1
        weight = torch.tensor(WEIGHT_OF_SHAPES)
        sought = nn.functional.binary_cross_entropy_with_logits(logits, wanted, pos_weight=weight)
        named = nn.functional.cross_entropy(logits[rows, patches], labels)
        placed = nn.functional.l1_loss(found[rows, patches], boxes)
        return ModelOutput(loss=sought + named + placed)

    def save_pretrained(self, folder: Path) -> None:
        """Write the model of images and texts."""
        self.model.save_pretrained(folder)


class ZeroShotObjectDetection(MediaTrainer):
    """One shape in one colour, and its place."""

    plan = Plan(rows=9600, batch=16, rate=2e-3)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return an OWLv2 with random weights, and its processors."""
        images = Owlv2ImageProcessorPil(size={"height": SIDE, "width": SIDE})
        processors = Processors.with_words(images, POSITIONS)
        text = {**TEXT, "max_position_embeddings": POSITIONS}
        vision = {**CONFIG, "patch_size": PATCH}
        config = Owlv2Config(
            text_config=text, vision_config=vision, projection_dim=TEXT["hidden_size"]
        )
        texts = processors.tokenizer(list(LABELS), padding=True, return_tensors="pt")
        given = {name: texts[name] for name in ("input_ids", "attention_mask")}
        return Finder(Owlv2ForObjectDetection(config), given), processors

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Draw images with the number of the label, and the patch and the box of the shape."""
        rng = Random(seed)
        return [_feature(processor.images, draw(rng)) for _ in range(count)]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of images whose best label is the shape's, at a patch of the shape."""
        held_out = self.held_out(tokenizer, rows, seed)
        with torch.inference_mode():
            logits, _ = model.outputs(torch.stack([row["pixel_values"] for row in held_out]))
        best = logits.flatten(1).argmax(1)
        labels = torch.tensor([int(row["labels"]) for row in held_out])
        return {"named": float((best % len(LABELS) == labels).float().mean())}

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Draw images, each with all labels."""
        return [
            {"image": as_base64(scene.image), "candidate_labels": list(LABELS)}
            for scene in drawn_scenes(rows, f"calibration {seed}")
        ]


def _feature(processor: Any, scene: Scene) -> Feature:
    pixels = processor(images=scene.image, return_tensors="pt")["pixel_values"][0]
    left, top, right, bottom = (each / SIDE for each in scene.box)
    x, y = (left + right) / 2, (top + bottom) / 2
    patch = int(y * ACROSS) * ACROSS + int(x * ACROSS)
    return {
        "pixel_values": pixels,
        "labels": torch.tensor(LABELS.index(scene.label)),
        "patches": torch.tensor(patch),
        "boxes": torch.tensor([x, y, right - left, bottom - top]),
    }


TRAINER = ZeroShotObjectDetection()
